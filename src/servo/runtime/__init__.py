"""Settings and the composition root. The rest is imported by its callers: a look at the settings needs none of it."""

from servo.runtime.settings import Settings, load_settings
from servo.runtime.wiring import Project, open_workspace

__all__ = ["Project", "Settings", "load_settings", "open_workspace"]
