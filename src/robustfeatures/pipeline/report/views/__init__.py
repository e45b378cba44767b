"""One module per kind of view; each has `make(view)`, which returns the contents of its files."""
