"""Which of Spark's settings let somebody in, and which must be on a command line.

The arguments of a process are for everybody on the machine to see. This file knows no Spark, so that whoever only shows
settings can import it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from servo.ledger.address import without_password

__all__ = ["at_launch", "is_secret", "shown_address", "shown_conf"]

_HIDDEN = "***"

# Spark's own rule for what it hides (secret, password, token, access key), and what the file systems call theirs.
_WORDS = (
    r"secret|passw(?:or)?d|passphrase|token|credential|azure[._]sas"
    r"|(?:access|account|api|private|shared|encryption|session)[._-]?key"
)
_NAME = re.compile(_WORDS, re.IGNORECASE)
# Inside a value: an option of Java's, a parameter of an address, an address with a password after something else.
_INSIDE = re.compile(rf"(?:{_WORDS})[\w.-]*=|[\s=,;][\w+.-]+://[^\s/@]*:[^\s@]*@", re.IGNORECASE)

# What shapes the JVM or is looked up before there is a session. Everything else is told to the session alone.
_AT_LAUNCH = frozenset(
    {
        "spark.archives",
        "spark.driver.bindAddress",
        "spark.driver.cores",
        "spark.driver.defaultJavaOptions",
        "spark.driver.extraClassPath",
        "spark.driver.extraJavaOptions",
        "spark.driver.extraLibraryPath",
        "spark.driver.host",
        "spark.driver.memory",
        "spark.driver.userClassPathFirst",
        "spark.files",
        "spark.hadoop.hadoop.security.authentication",
        "spark.jars",
        "spark.jars.excludes",
        "spark.jars.ivy",
        "spark.jars.ivySettings",
        "spark.jars.packages",
        "spark.jars.repositories",
        "spark.kerberos.keytab",
        "spark.kerberos.principal",
        "spark.log.level",
        "spark.log.structuredLogging.enabled",
        "spark.master",
        "spark.submit.deployMode",
        "spark.submit.pyFiles",
    }
)


def is_secret(name: str, value: str = "") -> bool:
    """Whether a setting is not to be seen: by its name, or since its value names a secret, as in `-Dpassword=…`."""
    return bool(_NAME.search(name) or _INSIDE.search(value))


def shown_conf(conf: Mapping[str, object]) -> str:
    """A table of settings as it may be shown, by name."""
    entries = (
        (name, _HIDDEN if is_secret(name, str(value)) else shown_address(str(value))) for name, value in conf.items()
    )
    return ", ".join(f"{name}={value}" for name, value in sorted(entries))


def shown_address(address: str) -> str:
    """An address as it may be shown; what a Spark Connect address says after its host may be a token."""
    place, semicolon, _ = address.partition(";") if address.startswith("sc:") else (address, "", "")
    return without_password(place) + (semicolon and f";{_HIDDEN}")


def at_launch(conf: Mapping[str, str]) -> dict[str, str]:
    """The settings that a JVM must be started with, and that may be seen on its command line.

    Options for Java are arguments of the JVM whatever one does, so that their values are not looked at.
    """
    return {name: value for name, value in conf.items() if name in _AT_LAUNCH and not is_secret(name)}
