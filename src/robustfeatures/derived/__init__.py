"""Derived data sets, which isolate robust or non-robust features (not-bugs-2019, Section 3)."""
