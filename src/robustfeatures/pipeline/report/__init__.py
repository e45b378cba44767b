"""Tables, figures, claims and the page: their numbers as text, their captions and their provenance."""
