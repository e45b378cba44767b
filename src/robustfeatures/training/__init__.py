"""Standard and adversarial training that can be killed and resumed without changing the weights."""
