"""The attacks of an evaluation, one module per kind; each finds which images are robust at which radii."""
