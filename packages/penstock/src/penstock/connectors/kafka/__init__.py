"""`kafka`: topics of Apache Kafka, read in exact ranges of offsets and written exactly once."""
