"""The toy models of the papers: closed forms beside simulation."""
