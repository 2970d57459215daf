"""Checkpoints: what waits for a person."""
