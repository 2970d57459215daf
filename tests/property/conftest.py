"""What laws over generated cases share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example or the making of one takes says how busy the machine is, and nothing of Servo.
settings.register_profile("servo", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("servo")
