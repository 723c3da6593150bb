"""`queue`: a commit log with a name, that pipelines write to and read from."""
