"""Data: the rows of assets."""
