"""The content-addressed store. A payload is made once, published in one step, and never changed."""
