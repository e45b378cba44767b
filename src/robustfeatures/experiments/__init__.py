"""One module per experiment of the papers: which recipes it needs, its table, its figure, its claims."""
