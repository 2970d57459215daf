"""Schedules: what starts by the clock."""
