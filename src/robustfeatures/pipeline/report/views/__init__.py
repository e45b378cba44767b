"""One module per kind of view. Each has a function `make(view)`, which returns the contents of its files."""
