"""What a study file and config.yaml say."""
