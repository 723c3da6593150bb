"""`stdout`: one line of standard output per record."""
