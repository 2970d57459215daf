"""Partitions: their status, what is stale, and what people state about them."""
