"""Measurements on networks and data sets; each module has a function `measure(run, **settings)` that returns rows."""
