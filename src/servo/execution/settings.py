"""How to reach Spark, and how batches are computed, as a project decides it. This file knows no Spark.

Also which of Spark's settings are secrets, and which must be on a command line: the arguments of a process are for
everybody on the machine to see.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import msgspec

from servo.ledger.address import without_password

LOCAL = "local[*]"

_Number = Annotated[int, msgspec.Meta(ge=0)]
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


class SparkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where assets are computed: on the cluster of `master`, or with `remote` by the Spark Connect server there.

    What `conf` says wins over all that Servo would set. `timeout_seconds` is how long a standalone master or a Connect
    server may take to answer. YARN and Kubernetes may have to find room first, and have time limits of their own.
    """

    master: str = LOCAL
    remote: str | None = None
    conf: dict[str, str] = {}
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 30.0

    def __repr__(self) -> str:
        # As everywhere, nothing that lets somebody in.
        remote = self.remote and shown_address(self.remote)
        return (
            f"SparkSettings(master={shown_address(self.master)}, remote={remote}, conf={{{shown_conf(self.conf)}}},"
            f" timeout_seconds={self.timeout_seconds:g})"
        )


class BatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How `batch=True` assets are computed: at most `partitions` of them in one task.

    Some partitions of a batch are also computed alone, and compared before the batch is published: `sample_partitions`
    of each batch in the first `sample_runs` runs of a code version, and after that of one batch in `sample_every`. Zero
    is never.
    """

    partitions: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1_000
    sample_partitions: _Number = 1
    sample_runs: _Number = 3
    sample_every: _Number = 20


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
