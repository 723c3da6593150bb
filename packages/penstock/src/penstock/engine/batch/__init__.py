"""The steps of a batch, one file each; `run.py` is the way through them."""
