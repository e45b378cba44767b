"""The content-addressed store: payloads are made once, published whole, and never changed."""
