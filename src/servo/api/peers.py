"""Which user of this machine is at the other end of a loopback connection.

Linux knows who made each socket. It is asked about the one that a request comes from, by sock_diag (the interface of
`ss`), or else by its table of all sockets, which takes far longer. Where neither names the user reliably, the user is
unknown, and whoever asks has to show a token.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Callable
from functools import cache
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import NamedTuple

__all__ = ["PEER", "Peer", "is_quick", "may_act_without_token"]

PEER = "peer"  # under which a request's state has the other end of its connection

_ROOT = 0
_HELD = frozenset({1, 4, 5, 8})  # established; or closed on one side, while its process still reads the answer
_LISTENING = 10
_TABLES = {4: Path("/proc/net/tcp"), 6: Path("/proc/net/tcp6")}
_OVERFLOW = Path("/proc/sys/kernel/overflowuid")
_OVERFLOW_UID = 65534

# From linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_WISH = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
_ENDS = struct.Struct("!HH16s16s")  # ports and addresses, as on the wire
_ANY_INTERFACE = struct.pack("=I8s", 0, b"\xff" * 8)
_FOUND = struct.Struct("=BBBB48sIIIII")  # family, state, timers, ends, expires, queues (2), user, inode
_ANSWER_BYTES = 4096

Endpoint = tuple[str, int]


class _Socket(NamedTuple):
    state: int
    uid: int
    inode: int


_Twice = tuple[_Socket | None, _Socket | None]
# Looks at the socket from one end to the other, and then again.
_Look = Callable[[Endpoint, Endpoint], _Twice]


def may_act_without_token(peer: int | None, own: int) -> bool:
    """Whether a user may ask a server that runs as `own` without a token: its own user and root, and nobody unknown."""
    return peer is not None and peer in (own, _ROOT)


class Peer:
    """The other end of one connection. Its user is looked up once, as it stays the same."""

    def __init__(self, client: Endpoint | None, server: tuple[str, int | None] | None) -> None:
        self._client = client
        self._server = None if server is None or server[1] is None else (server[0], server[1])
        self._uid: int | None = None

    def uid(self) -> int | None:
        """The id of its user, or None where that cannot be told. Blocks, unless `is_quick`."""
        if self._uid is None and self._client and self._server and (look := _reliable_look()) is not None:
            self._uid = _uid_of(look, self._client, self._server)
        return self._uid


def _uid_of(look: _Look, local: Endpoint, remote: Endpoint) -> int | None:
    """The user who holds the socket from `local` to `remote`.

    A socket that its process has closed is listed as root's, and it may be closed between the kernel's look at its
    state and at its user. So it must still have its inode when it is looked at again: then the first look was true.
    """
    first, again = look(local, remote)
    if first is None or again is None or (first.uid, first.inode) != (again.uid, again.inode):
        return None
    if not {first.state, again.state} <= _HELD or first.inode == 0 or first.uid == _unmapped_uid():
        return None
    return first.uid


def is_quick() -> bool:
    """Whether users are told at once: then a thread of its own would cost more than the answer."""
    return _reliable_look() is _by_sock_diag


def _by_sock_diag(local: Endpoint, remote: Endpoint) -> _Twice:
    """Ask for one socket by its two ends. An IPv4 connection is found whichever family its socket has."""
    try:
        family = socket.AF_INET if isinstance(ip_address(local[0]), IPv4Address) else socket.AF_INET6
        ends = _ENDS.pack(local[1], remote[1], socket.inet_pton(family, local[0]), socket.inet_pton(family, remote[0]))
        wish = _WISH.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + ends + _ANY_INTERFACE
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            return _asked(kernel, wish, 1), _asked(kernel, wish, 2)
    except (OSError, ValueError, AttributeError, struct.error):
        return None, None


def _asked(kernel: socket.socket, wish: bytes, number: int) -> _Socket | None:
    kernel.send(_HEADER.pack(_HEADER.size + len(wish), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, number, 0) + wish)
    answer = kernel.recv(_ANSWER_BYTES, socket.MSG_DONTWAIT)  # it is there when the question is sent
    _, kind, _, answered, _ = _HEADER.unpack_from(answer)
    if kind != _SOCK_DIAG_BY_FAMILY or answered != number:
        return None
    found = _FOUND.unpack_from(answer, _HEADER.size)
    return _Socket(state=found[1], uid=found[8], inode=found[9])


def _by_table(local: Endpoint, remote: Endpoint) -> _Twice:
    return _in_table(local, remote), _in_table(local, remote)


def _in_table(local: Endpoint, remote: Endpoint) -> _Socket | None:
    """The line of a socket in the table; an IPv4 connection may be in the one for IPv6, as those of Java are."""
    for version, table in _TABLES.items():
        try:
            ends = f" {_written(local, version)} {_written(remote, version)} ".encode()
            lines = table.read_bytes()
        except (OSError, ValueError):
            continue
        begin = lines.find(ends)
        if begin >= 0:
            fields = lines[begin : lines.find(b"\n", begin)].split()
            return _Socket(state=int(fields[2], 16), uid=int(fields[6]), inode=int(fields[8]))
    return None


def _written(place: Endpoint, version: int) -> str:
    """An address and port as the table writes them: words of four bytes in the machine's own order, and the port."""
    address = ip_address(place[0])
    packed = address.packed
    if isinstance(address, IPv4Address) and version == 6:
        packed = (b"\0" * 10 + b"\xff\xff" + packed) if int(address) else bytes(16)
    if len(packed) != {4: 4, 6: 16}[version]:
        raise ValueError(place)
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words) + f":{place[1]:04X}"


@cache
def _unmapped_uid() -> int:
    """What the kernel writes for every user whom this container does not know."""
    try:
        return int(_OVERFLOW.read_text())
    except (OSError, ValueError):
        return _OVERFLOW_UID


_LOOKS: tuple[_Look, ...] = (_by_sock_diag, _by_table)


@cache
def _reliable_look() -> _Look | None:
    """The quickest way to look at a socket that names its user rightly; None where there is none."""
    return next((look for look in _LOOKS if _names_users(look)), None)


def _names_users(look: _Look) -> bool:
    """Whether users are told at all: some sandboxes list every socket as root's."""
    if not hasattr(os, "geteuid"):
        return False
    expected = os.geteuid()
    try:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            if expected == _ROOT:
                expected = 1  # root's own sockets would look the same either way
                os.fchown(probe.fileno(), expected, -1)
            found, _ = look(probe.getsockname(), ("0.0.0.0", 0))
    except OSError:
        return False
    return found is not None and found.state == _LISTENING and found.uid == expected
