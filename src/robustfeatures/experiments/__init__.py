"""One module per experiment of the papers: its needs, table, figure and claims."""
