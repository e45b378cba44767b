"""Derived data sets: robust or non-robust features isolated (not-bugs-2019, Section 3)."""
