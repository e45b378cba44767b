"""One job: from a planned recipe to a published payload."""
