"""Shared parts of all computations: batches, frozen networks, precision, determinism, randomness, registries."""
