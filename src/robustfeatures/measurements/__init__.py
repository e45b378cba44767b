"""Measurements on networks and data sets; each module has a function `measure` that returns rows."""
