"""Settings, the composition root, and the service that CLI and API both call.

`servo.runtime.service` is imported by whoever calls it: a look at the settings alone needs none of what it brings.
"""

from servo.runtime.settings import Settings, load_settings
from servo.runtime.wiring import Project, open_workspace

__all__ = ["Project", "Settings", "load_settings", "open_workspace"]
