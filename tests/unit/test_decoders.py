"""`servo.decoders`: types that threads use for the first time together, and the lint that lets no call around it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Generic, TypeVar

import msgspec
import pytest

from servo import decoders

ROOT = Path(__file__).parents[2]
# Each of these dies of SIGSEGV when the calls go to msgspec itself. The whole proof is 200; the suite takes a sample.
PROCESSES = int(os.environ.get("SERVO_FRESH_PROCESSES", "2"))

# A chain of types that nobody has used yet: long to describe, so that eight threads are inside it at once.
_NESTED = """
import msgspec
kind = int
for number in range(300):
    kind = msgspec.defstruct(f"S{number}", [
        ("inner", kind | None, None),
        ("several", list[kind], msgspec.field(default_factory=list)),
        ("named", dict[str, kind], msgspec.field(default_factory=dict)),
    ])
text = b'{"inner": {"several": [{}], "named": {"a": {}}}}'
work = [
    lambda: decoders.decode(text, kind),
    lambda: decoders.convert({"inner": {"several": [{}]}}, kind),
    lambda: decoders.decoder(list[kind]).decode(b"[" + text + b"]"),
    lambda: decoders.decode(text, kind, dec_hook=lambda *_: None),
] * 2
"""
# Every Struct type of Servo, and every field of it.
_EVERY_TYPE = """
import importlib, pkgutil
import msgspec, servo, servo.errors
for module in pkgutil.walk_packages(servo.__path__, "servo."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
kinds, left = [], [msgspec.Struct]
while left:
    for kind in left.pop().__subclasses__():
        left.append(kind)
        if kind.__module__.startswith("servo."):
            kinds.append(kind)
assert len(kinds) > 300, len(kinds)
kinds.sort(key=lambda kind: -len(kind.__struct_fields__))
def use_all():
    for kind in kinds:
        for field in reversed(kind.__struct_encode_fields__):  # the last is described last
            try:
                decoders.convert({field: None}, kind)
            except (msgspec.ValidationError, TypeError, NameError, servo.errors.ServoError):
                pass  # fields are missing, or a field's type is known to type checkers alone
work = [use_all] * 8
"""
_TOGETHER = """
import sys, threading
sys.setswitchinterval(1e-6)
from servo import decoders
{setup}
barrier, failures = threading.Barrier(len(work)), []
def run(call):
    barrier.wait()
    try:
        call()
    except BaseException as problem:
        failures.append(problem)
threads = [threading.Thread(target=run, args=(call,)) for call in work]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if failures:
    raise failures[0]
"""

T = TypeVar("T")


class Box(msgspec.Struct, Generic[T], frozen=True):
    content: T


@pytest.mark.parametrize("setup", [_NESTED, _EVERY_TYPE], ids=["nested", "every-type"])
def test_threads_that_use_a_type_for_the_first_time_together_do_not_crash(setup: str) -> None:
    for number in range(PROCESSES):
        done = subprocess.run(
            [sys.executable, "-c", _TOGETHER.format(setup=setup)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"process {number}: {done.returncode}\n{done.stderr[-2000:]}"


def test_a_process_forked_while_a_type_is_built_waits_for_it() -> None:
    """A fork in the middle would leave the child with half a description, and with a lock that nobody holds."""
    script = _TOGETHER.format(
        setup=_NESTED
        + """
import os
def fork_and_use():
    child = os.fork()
    if child == 0:
        decoders.decode(text, kind)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
work += [fork_and_use] * 4
"""
    )
    for _ in range(PROCESSES):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-2000:]


def test_equal_spellings_of_a_generic_type_share_one_prepared_object() -> None:
    first = decoders.prepare(Box[int])
    assert decoders.prepare(Box[int]) is first
    assert decoders.convert({"content": 3}, Box[int]) == Box(3)
    assert decoders.decode(b'{"content":3}', Box[int]) == Box(3)
    with pytest.raises(msgspec.ValidationError):
        decoders.convert({"content": "3"}, Box[int])
    assert decoders.convert({"content": "3"}, Box[int], strict=False) == Box(3)


def test_a_type_that_cannot_be_described_is_refused_each_time() -> None:
    bad = msgspec.defstruct("Bad", [("field", "NobodyDeclaredThis")])
    for _ in range(2):
        with pytest.raises(NameError):
            decoders.decode(b"{}", bad)
    thread = Thread(target=decoders.decode, args=(b"{}",))  # and leaves the lock free
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "call",
    [
        "msgspec.json.decode(b'', type=int)",
        "msgspec.convert(1, int)",
        "msgspec.json.Decoder(int)",
        "msgspec.msgpack.Decoder(int)",
        "msgspec.msgpack.decode(b'', type=int)",
        "msgspec.toml.decode(b'', type=int)",
        "msgspec.yaml.decode(b'', type=int)",
    ],
)
@pytest.mark.parametrize("imported", [False, True], ids=["attribute", "from-import"])
def test_lint_refuses_calls_around_the_decoders(call: str, imported: bool) -> None:
    module, _, name = call.partition("(")[0].rpartition(".")
    code = f"from {module} import {name}\n\n{name}\n" if imported else f"import {module}\n\n{call}\n"
    found = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--stdin-filename", "src/servo/runtime/new.py", "-"],
        input=code,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert "TID251" in found.stdout, found.stdout + found.stderr
