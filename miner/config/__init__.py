"""Settings: one frozen model for each command, and the YAML files they are read from."""
