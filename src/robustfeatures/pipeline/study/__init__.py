"""Study files and config.yaml: their fields and checks."""
