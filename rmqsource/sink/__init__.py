"""Turn rows into messages without Spark: options, checks, columnar encoding and staging."""
