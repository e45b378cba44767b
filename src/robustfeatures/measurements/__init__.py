"""Measurements on networks and data sets that are no accuracy under the study's attack; each module has `measure`."""
