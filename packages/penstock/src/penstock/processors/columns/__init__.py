"""What several processors build of Spark columns in `compile`. Imported there, so a file is checked without pyspark."""
