"""Settings: one frozen model per command, and reading them from YAML files."""
