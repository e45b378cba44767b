"""Standard and adversarial training; an interrupted training resumes to the same weights, bit for bit."""
