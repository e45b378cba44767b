"""What the command line does to artifacts."""
