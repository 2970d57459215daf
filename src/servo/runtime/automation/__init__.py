"""Schedules and sensors: what people do with them, and what drives them."""
