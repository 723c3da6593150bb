"""Prints what is installed in this environment as constraints: names and versions, no addresses."""

from importlib import metadata

OURS = {"penstock", "penstock-sdk", "penstock-protocol", "pip", "setuptools", "wheel", "uv"}

pins = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in metadata.distributions()}
print("# What `make setup` installs. Made by `make lock`.")
for name in sorted(pins.keys() - OURS):
    print(f"{name}=={pins[name]}")
