"""The command line. One file per command; none of them imports pyspark unless it runs a pipeline."""
