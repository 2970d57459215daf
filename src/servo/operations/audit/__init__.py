"""Audit reports: how a partition came about, with the proof."""
