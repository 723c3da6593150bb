"""Built-in connectors, one folder per system."""
