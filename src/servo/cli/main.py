"""The entry point, `servo …`. Every error ends here, as one line or one JSON object on stderr and an exit code."""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import sys
from collections.abc import Callable, Sequence
from threading import Event, Thread, main_thread
from threading import enumerate as enumerate_threads
from typing import Any, NoReturn

import click
from click.exceptions import NoArgsIsHelpError

from servo import __version__
from servo.cli import interrupts
from servo.cli.commands import ClosedPipe, LazyGroup
from servo.cli.opening import READ_AHEAD
from servo.errors import ServoError

INTERRUPTED = 130  # 128 + SIGINT, as shells say it
CLOSED_PIPE = 141  # 128 + SIGPIPE
TERMINATED = 143  # 128 + SIGTERM
_OBJECTS = 50_000  # that may be new before Python looks for garbage among them

cli = LazyGroup(
    "servo",
    help="Servo: a partition-aware orchestrator for data assets that Spark computes.",
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict. Completion: see docs/reference/cli.md.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
click.version_option(__version__, "-V", "--version", prog_name="servo")(cli)


def main() -> None:
    """The entry point of the `servo` command."""
    if sys.stdout is None:  # it was closed
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 (it lives as long as the program)
    # Modules are many objects and no garbage: while they are loaded there is little to collect.
    gc.set_threshold(_OBJECTS)
    interrupts.listen()
    code = run(sys.argv[1:])
    unwritten = False
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = CLOSED_PIPE
    except OSError:
        code, unwritten = code or 1, True
    if code == CLOSED_PIPE or unwritten:
        # Python would complain when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if code in (INTERRUPTED, TERMINATED):
        # What was at work is simply left: nothing half-done is ever visible. A progress bar may have hidden the cursor.
        if sys.stderr.isatty():
            sys.stderr.write("\x1b[?25h")
        sys.stderr.flush()
        os._exit(code)
    _leave(code)


def _leave(code: int) -> NoReturn:
    """End the process: run exit functions, but do not destroy all loaded modules, object by object.

    That took as long as many a command.
    """
    if all(thread.daemon or thread is main_thread() for thread in enumerate_threads()):
        atexit._run_exitfuncs()  # as Python would
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    for thread in enumerate_threads():
        if thread.name == READ_AHEAD:
            thread.join()  # a database must not be loaded while all else is taken apart
    sys.exit(code)


_LISTEN_SECONDS = 0.2


def _interruptibly(work: Callable[[], Any]) -> Any:
    """Work in a thread, so that the main one receives Ctrl-C, which databases at work do not.

    A command may register a reaction to the first Ctrl-C, and then goes on; see `servo.cli.interrupts`.
    """
    result: list[Any] = []
    failure: list[BaseException] = []
    done = Event()  # not `join`: a thread whose join was interrupted counts as ended (Python 3.11)

    def do() -> None:
        try:
            result.append(work())
        except BaseException as problem:  # noqa: BLE001 (it goes on in the main thread)
            failure.append(problem)
        finally:
            done.set()

    Thread(target=do, name="servo", daemon=True).start()
    while not done.is_set():
        try:
            # Not for ever: a signal that another thread happens to take does not wake this one.
            done.wait(_LISTEN_SECONDS)
        except KeyboardInterrupt:
            if not interrupts.react():
                raise
    if failure:
        raise failure[0]
    return result[0]


def run(args: Sequence[str]) -> int:
    """Run one command; its exit code."""
    as_json = "--json" in args
    try:
        result = _interruptibly(lambda: cli.main(list(args), prog_name="servo", standalone_mode=False))
    except ServoError as problem:
        _print_error(problem.code, problem.message, problem.hint, as_json=as_json)
        return problem.exit_code
    except NoArgsIsHelpError as problem:
        problem.show()
        return problem.exit_code
    except click.UsageError as problem:
        where = problem.ctx.command_path if problem.ctx else "servo"
        _print_error("usage", problem.format_message(), f"see `{where} --help`", as_json=as_json)
        return problem.exit_code
    except click.ClickException as problem:
        _print_error("failed", problem.format_message(), None, as_json=as_json)
        return problem.exit_code
    except interrupts.Terminated:
        _print_error("interrupted", "terminated", None, as_json=as_json)
        return TERMINATED
    except interrupts.Left as left:
        _print_error("interrupted", left.message, left.hint, as_json=as_json)
        return INTERRUPTED
    except (click.Abort, KeyboardInterrupt):
        _print_error("interrupted", "interrupted", None, as_json=as_json)
        return INTERRUPTED
    except ClosedPipe:
        return CLOSED_PIPE
    except OSError as problem:
        # Servo's own files have errors of their own; what is left is where the answer was to go.
        _print_error("output", f"the answer cannot be written: {problem.strerror or problem}", None, as_json=as_json)
        return 1
    return result if isinstance(result, int) else 0


def _print_error(code: str, message: str, hint: str | None, *, as_json: bool) -> None:
    if as_json:
        error = {"code": code, "message": message, "hint": hint}
        click.echo(json.dumps({"error": error}, ensure_ascii=False), err=True)
        return
    text = f"servo: {message}" + (f" ({hint})" if hint else "")
    click.echo(" ".join(text.split()), err=True)
