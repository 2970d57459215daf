"""What the shell is offered when somebody presses Tab. It is to be quick: nothing is imported that need not be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from servo.cli.opening import server, services

_BEFORE = re.compile(r"(.*[\s(]|)(\d*\+)?")  # of a selection, what may stand before a name


def complete_assets(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The assets of the project, by name or by key; nothing where the project cannot be read at a glance."""
    begun = _BEFORE.match(incomplete)
    before = "" if begun is None else begun[0]
    word = incomplete[len(before) :]
    names: Iterable[str] = ()
    with suppress(Exception):  # whatever is wrong, the command will say it better
        names = _asset_names()
    return [CompletionItem(before + name) for name in names if name.startswith(word)]


def _asset_names() -> list[str]:
    if server() is not None:
        from servo.operations.assets.requests import ListAssets

        with services() as here:
            keys = [one.asset_key for one in here.listed(ListAssets()).items]
    else:
        from servo.runtime.definitions_cache import remembered_keys
        from servo.runtime.settings import load_settings

        keys = remembered_keys(load_settings())
    return [name for key in keys for name in (key.partition("/")[2], key)]
