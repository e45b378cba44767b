"""The commands for people: they show, check, fetch, open, export and remove artifacts."""
