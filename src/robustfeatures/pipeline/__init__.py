"""What is made, where it lies and what people read; the science knows nothing of it."""
