"""Commands as they are found by name, beside the commands themselves."""

from __future__ import annotations

from importlib import import_module
from inspect import cleandoc

import click
import pytest

from servo.cli.commands import COMMANDS, Noun, help_of
from servo.cli.main import cli

NOUNS = {name: place for name, place in COMMANDS.items() if isinstance(place, Noun)}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_where_the_table_says(name: str) -> None:
    assert isinstance(cli.get_command(click.Context(cli), name), click.Command)


@pytest.mark.parametrize("name", NOUNS)
def test_the_verbs_of_a_noun_and_their_help_are_read_from_its_source(name: str) -> None:
    module = import_module(NOUNS[name].module)
    commands = [one for one in vars(module).values() if isinstance(one, click.Command)]
    assert help_of(module.__name__)[1] == {str(one.name): cleandoc(str(one.help)) for one in commands}
