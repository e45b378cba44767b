"""The attacks of an evaluation, a module per kind: each says which images withstand which radii, with no idle work."""
