"""Data sources, and the splits that are made from them."""
