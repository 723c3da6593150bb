"""From a pipeline to what the engine runs. Pure: no Spark, no I/O."""
