"""The Java that Spark would start: found and asked for its version, without starting Spark."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from servo.errors import JavaMissing

_OLDEST = 17
_HINT = "install Java 17 or newer (Debian: `apt-get install openjdk-17-jre-headless`), or set JAVA_HOME"


def require_java(environ: Mapping[str, str]) -> str:
    """The version and place of a Java that Spark can use."""
    home = environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environ.get("PATH"))
    if java is None:
        raise JavaMissing("there is no Java on the PATH, and Spark does not start without it", hint=_HINT)
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise JavaMissing(f"{java} does not run: {failure}", hint=_HINT) from failure
    found = re.search(r'version "((\d+)(?:\.(\d+))?[^"]*)"', answer.stderr + answer.stdout)
    if answer.returncode or found is None:
        raise JavaMissing(f"{java} does not tell its version", hint=_HINT)
    major = int(found[2]) if found[2] != "1" else int(found[3] or 0)  # Java 8 calls itself 1.8
    if major < _OLDEST:
        raise JavaMissing(f"{java} is Java {found[1]}, which is too old for Spark", hint=_HINT)
    return f"{found[1]} at {java}"
