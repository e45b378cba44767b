"""A study unfolded: recipes, identities, tasks, views."""
