"""Backfills: any slice of history, computed in chunks."""
