"""Lineage: what partitions were made from, and what was made from them."""
