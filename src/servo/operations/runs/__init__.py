"""Runs: what is computed, and what would be."""
