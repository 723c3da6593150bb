"""Built-in processors, one file each."""
