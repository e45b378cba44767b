"""Recipes say how each artifact is made; a study unfolds into recipes without importing torch."""
