"""What the shell is offered when somebody presses Tab."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def complete_assets(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The assets of the project, by name or by key; nothing where the project cannot be read at a glance."""
    try:
        from servo.runtime.definitions_cache import quick_catalog
        from servo.runtime.settings import load_settings

        known = quick_catalog(load_settings())
    except Exception:  # noqa: BLE001 (whatever is wrong, the command will say it better)
        return []
    if known is None:
        return []
    names = [name for spec in known.graph.specs.values() for name in (spec.name, spec.key)]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
