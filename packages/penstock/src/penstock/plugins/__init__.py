"""From a plugin's name to its class. Loads nothing until it is asked for."""
