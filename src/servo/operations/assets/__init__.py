"""Assets: what the code declares, and why their partitions are as they are."""
