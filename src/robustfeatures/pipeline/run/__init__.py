"""The jobs: each makes a payload from a planned recipe and publishes it in the store."""
