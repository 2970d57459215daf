"""Sensors: what starts by itself when something happens elsewhere."""
