"""What built-in watches look at: files, partitions, runs, rows."""
