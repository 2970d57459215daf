"""A group of commands whose modules are imported when they are called: `--help` must not wait for them."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from inspect import cleandoc
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from servo.errors import MissingExtra


class ClosedPipe(Exception):  # noqa: N818 (nobody did anything wrong: `… | head` has seen enough)
    """Whoever read our output has stopped reading."""


class Command(NamedTuple):
    """Where a command is, and what it does in a line."""

    module: str
    line: str


class Noun(NamedTuple):
    """A group: the module that has its verbs, what they do in a line, its help, and the line of each verb."""

    module: str
    line: str
    help: str
    verbs: Mapping[str, str]


class LazyGroup(click.Group):
    """Knows its commands by name, and imports the module of the one that is called."""

    def __init__(self, *args: Any, places: Mapping[str, Command | Noun], **options: Any) -> None:
        super().__init__(*args, **options)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (Click's signature)
        return sorted(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (likewise)
        place = self._places.get(cmd_name)
        if isinstance(place, Noun):
            verbs = {verb: Command(place.module, line) for verb, line in place.verbs.items()}
            return LazyVerbs(cmd_name, help=cleandoc(place.help), places=verbs)
        return None if place is None else _loaded(cmd_name, place.module)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Under another name, or Click would turn it into an ordinary failure.
            raise ClosedPipe from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._places[name].line) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=_cut(self._places[name].line)) for name in names), *options]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in self._places or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        meant = get_close_matches(name, self._places, n=1)
        hint = f" Did you mean {meant[0]!r}?" if meant else ""
        raise click.UsageError(f"No such command {name!r}.{hint}", ctx)


class LazyVerbs(LazyGroup):
    """The verbs of a noun, each in a line that fits."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        space = formatter.width - 6 - max(map(len, self._places))
        with formatter.section("Commands"):
            formatter.write_dl([(name, _cut(self._places[name].line, space)) for name in self.list_commands(ctx)])


def _cut(line: str, space: int = 45) -> str:
    """As much of a line as fits, as Click has it."""
    return click.Command(None, help=line).get_short_help_str(space)


def _loaded(name: str, module: str) -> click.Command:
    """The command of this name in a module."""
    try:
        known = vars(import_module(module)).values()
    except ModuleNotFoundError as problem:
        if problem.name != module:
            raise
        raise MissingExtra(f"`servo {name}` is not part of this installation", hint="install a newer Servo") from None
    return next(one for one in known if isinstance(one, click.Command) and one.name == name)
