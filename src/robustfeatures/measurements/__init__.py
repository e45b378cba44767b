"""Measurements on data sets and networks that are no plain accuracy; each module has a function `measure`."""
