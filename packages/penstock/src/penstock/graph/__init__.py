"""Pictures of pipelines: `model` makes a `Graph` of an assembly, and `text`, `mermaid`, `dot` and `svg` write it down.

Used by `penstock graph`. Needs no Spark, and shows no setting and no value: only what the file says, as it is written.
"""
