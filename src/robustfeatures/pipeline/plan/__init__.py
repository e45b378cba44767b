"""The plan of a study: recipes, identities, tasks, views."""
