"""Work that runs on Spark."""
