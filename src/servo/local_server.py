"""The server of a project's folder, as other programs of this machine find it: its address, and its owner's token.

Both are files in the project's home. The token lets its bearer do everything on a server that listens on a loopback
address; only the user who started the server can read it. `servo.Client` and the command line look for it here.
"""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

__all__ = [
    "TOKEN_PREFIX",
    "RunningServer",
    "announce",
    "homes_around",
    "is_loopback",
    "make_owner_token",
    "owner_token_for",
    "owner_token_path",
    "running_server",
    "withdraw",
    "write_private",
]

TOKEN_PREFIX = "servo_"  # scanners of leaked secrets know a token by it
_TOKEN_BYTES = 32
_ADDRESS_FILE = "server.json"
_OTHERS = 0o077


class RunningServer(NamedTuple):
    url: str
    pid: int


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine and nothing else."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


# ── the address ──────────────────────────────────────────────────────────────────────────────────────────────────


def announce(home: Path, url: str) -> None:
    """Write down where this process serves. Never fails: without it, other programs have to be told the address."""
    with suppress(OSError):
        (home / _ADDRESS_FILE).write_text(json.dumps({"url": url, "pid": os.getpid()}))


def withdraw(home: Path) -> None:
    """Remove the address, if it is this process's."""
    with suppress(OSError):
        found = _announced(home)
        if found is not None and found.pid == os.getpid():
            (home / _ADDRESS_FILE).unlink()


def running_server(home: Path) -> RunningServer | None:
    """The newest server of a home whose process lives."""
    found = _announced(home)
    if found is None or _is_alive(found.pid) is False:
        return None
    return found


def _announced(home: Path) -> RunningServer | None:
    try:
        found = json.loads((home / _ADDRESS_FILE).read_text())
        return RunningServer(str(found["url"]), int(found["pid"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _is_alive(pid: int) -> bool | None:
    """None: there is such a process, and it is another user's."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return None
    except (OSError, OverflowError):
        return False
    return True


# ── the token ────────────────────────────────────────────────────────────────────────────────────────────────────


def owner_token_path(home: Path) -> Path:
    return home / "secrets" / "server.token"


def make_owner_token(home: Path, *, random_bytes: Callable[[int], bytes] = os.urandom) -> str:
    """The owner's token of a home; it is made when there is none, or when others could read it. Raises OSError."""
    path = owner_token_path(home)
    with suppress(FileNotFoundError):
        if path.stat().st_mode & _OTHERS:
            path.unlink()  # it may be known to others by now
    text = TOKEN_PREFIX + urlsafe_b64encode(random_bytes(_TOKEN_BYTES)).rstrip(b"=").decode()
    write_private(path, text.encode() + b"\n", random_bytes)
    return path.read_text(encoding="ascii").strip()


def owner_token_for(url: str, homes: Callable[[], Iterable[Path]]) -> str | None:
    """The owner's token for a server, if it is the running loopback server of one of these homes.

    `homes` is called only where the address is a loopback one.

    It is given to no other server: another user's that took the same port would learn it.
    """
    asked = _place(url)
    if asked is None:
        return None
    for home in homes():
        found = _announced(home)
        if found is not None and _place(found.url) == asked and _is_alive(found.pid):
            with suppress(OSError, ValueError):
                return owner_token_path(home).read_text(encoding="ascii").strip() or None
    return None


def homes_around(folder: Path) -> list[Path]:
    """Where the home of a project is looked for, from a folder in it: SERVO_HOME, or `.servo` here or above."""
    named = os.environ.get("SERVO_HOME")
    if named:
        return [folder / named]
    return [above / ".servo" for above in (folder, *folder.parents)]


def _place(url: str) -> tuple[str, int] | None:
    """What tells loopback servers apart; None for any other.

    `localhost` is not 127.0.0.1 here: it may mean ::1, where another user can listen on the same port.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        return None
    if parts.scheme != "http" or not is_loopback(host):
        return None
    return host.lower(), port


# ── files that only their owner can read ─────────────────────────────────────────────────────────────────────────


def write_private(path: Path, content: bytes, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
    """Make a file that only its owner can read, whole or not at all; where there is one already, it stays."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists():
        return
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.{random_bytes(4).hex()}.tmp")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(unfinished, path)  # unlike a rename, it fails where there is one already
    finally:
        unfinished.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # so that it is still there after a crash
    finally:
        os.close(folder)
