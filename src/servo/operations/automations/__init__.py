"""Schedules and sensors: what starts by itself when it is time, or when something happens elsewhere."""
