"""Every command by its name, found without importing the module that has it: help and completion wait for none."""

from __future__ import annotations

import ast
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

__all__ = ["COMMANDS", "ClosedPipe", "Command", "LazyGroup", "Noun", "help_of"]


class Command(NamedTuple):
    """Where a command is, and what it does in a line."""

    module: str
    line: str


class Noun(NamedTuple):
    """A group of commands: the module that has them, whose docstring is its help, and what they do in a line."""

    module: str
    line: str


COMMANDS: dict[str, Command | Noun] = {
    "asset": Noun("servo.cli.asset", "List and show the project's assets."),
    "audit": Noun("servo.cli.audit", "Report how a partition came about, and prove the report."),
    "backfill": Noun("servo.cli.backfill", "Recompute slices of history; watch, stop and repair it."),
    "check": Command("servo.cli.definitions", "Say what is wrong with the project's definitions."),
    "checkpoint": Noun("servo.cli.checkpoint", "Approve or reject what waits for a person."),
    "demo": Command("servo.cli.demo", "Show what Servo does, from nothing to results."),
    "deploy": Command("servo.cli.definitions", "Make the folder's definitions take effect."),
    "doctor": Command("servo.cli.doctor", "Check this machine and this project; change nothing."),
    "init": Command("servo.cli.init", "Begin a project: a few assets that run as they stand."),
    "ledger": Noun("servo.cli.ledger", "Verify, replay, compact, archive and export the ledger."),
    "lineage": Noun("servo.cli.lineage", "What partitions were made from, and what was made from them."),
    "materialize": Command("servo.cli.materialize", "Compute partitions of assets, and wait for them."),
    "partition": Noun("servo.cli.partition", "The status of partitions, why it is so, and their history."),
    "plan": Command("servo.cli.materialize", "Explain what a run would do; change nothing."),
    "query": Command("servo.cli.data", "Run one SELECT over the projections."),
    "read": Command("servo.cli.data", "Show the data of an asset, now or as of then."),
    "reproduce": Command("servo.cli.data", "Compute a partition again as it was, and compare."),
    "run": Noun("servo.cli.run", "List, show, cancel and retry runs, and read their logs."),
    "schedule": Noun("servo.cli.schedule", "What starts by the clock: list, edit, pause, trigger, look ahead."),
    "sensor": Noun("servo.cli.sensor", "What starts by itself: list, pause, evaluate, send messages."),
    "tick": Command("servo.cli.processes", "Do what is due by schedules and sensors, once, and exit."),
    "token": Noun("servo.cli.token", "Who may ask the server: make, list and revoke tokens."),
    "up": Command("servo.cli.processes", "Run the control loop and workers until stopped."),
    "vacuum": Command("servo.cli.data", "Remove data files that no event points to."),
    "worker": Command("servo.cli.processes", "Take tasks and run them on Spark."),
}


class ClosedPipe(Exception):  # noqa: N818 (nothing went wrong: `… | head` has seen enough)
    """The reader of our output has closed it."""


class LazyGroup(click.Group):
    """Knows its commands by name, and imports the module of the one that is called."""

    @property
    def lines(self) -> dict[str, str]:
        """What each command does in a line, by its name."""
        return {name: place.line for name, place in COMMANDS.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (Click's signature)
        return sorted(self.lines)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (likewise)
        place = COMMANDS.get(cmd_name)
        if isinstance(place, Noun):
            return LazyVerbs(cmd_name, place.module)
        return None if place is None else _loaded(cmd_name, place.module)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Under another name, or Click would turn it into an ordinary failure.
            raise ClosedPipe from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.lines[name]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=_cut(self.lines[name])) for name in names), *options]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if ctx.resilient_parsing or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        similar = get_close_matches(name, self.lines, n=1)
        hint = f" Did you mean {similar[0]!r}?" if similar else ""
        raise click.UsageError(f"No such command {name!r}.{hint}", ctx)


class LazyVerbs(LazyGroup):
    """The verbs of a noun. Their help is read from the source of its module: that takes less than importing it."""

    def __init__(self, name: str, module: str) -> None:
        super().__init__(name)
        self._module = module

    @property
    def lines(self) -> dict[str, str]:
        return help_of(self._module)[1]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (as above)
        return _loaded(cmd_name, self._module)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.help = help_of(self._module)[0]
        super().format_help_text(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        space = formatter.width - 6 - max(map(len, self.lines))
        with formatter.section("Commands"):
            formatter.write_dl([(name, _cut(self.lines[name], space)) for name in self.list_commands(ctx)])


@cache
def help_of(module: str) -> tuple[str, dict[str, str]]:
    """The docstring of a module, and those of its commands by their names."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_bytes())
    commands: dict[str, str] = {}
    for function in (one for one in tree.body if isinstance(one, ast.FunctionDef)):
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) in ("click.command", "command"):
                name = ast.literal_eval(decorator.args[0]) if decorator.args else function.name
                commands[name] = ast.get_docstring(function) or ""
    return ast.get_docstring(tree) or "", commands


def _cut(line: str, space: int = 45) -> str:
    """As much of a line as fits, as Click has it."""
    return click.Command(None, help=line).get_short_help_str(space)


def _loaded(name: str, module: str) -> click.Command | None:
    """The command of this name in a module."""
    values = vars(import_module(module)).values()
    return next((one for one in values if isinstance(one, click.Command) and one.name == name), None)
