"""A typed client of a running Servo, for programs: `servo.Client`. It needs nothing of the project but its address."""

from servo.client.client import Client
from servo.client.performer import Page, Watermark

__all__ = ["Client", "Page", "Watermark"]
