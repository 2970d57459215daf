"""Cursors: they come back as they were, and only to the list that they are of."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servo.api.inputs import Cursors
from servo.api.problems import Refused
from servo.runtime.secrets import Secret

SECRET = Secret(b"secret")
PLACES = st.tuples(st.datetimes(timezones=st.just(UTC)), st.text(st.characters(exclude_categories=["Cs"])))


@given(place=PLACES)
def test_a_cursor_comes_back_as_it_was(place: tuple[datetime, str]) -> None:
    cursors = Cursors(SECRET, "/runs", "{}")
    text = cursors.text(place)
    assert text.isascii()
    assert cursors.place(text, tuple[datetime, str]) == place
    assert cursors.place(None, tuple[datetime, str]) is None


@given(text=st.text(max_size=200))
def test_nobody_makes_one_up(text: str) -> None:
    with pytest.raises(Refused):
        Cursors(SECRET, "/runs", "{}").place(text, str)


@given(place=st.text(st.characters(exclude_categories=["Cs"])), data=st.data())
def test_none_that_was_changed_is_taken(place: str, data: st.DataObject) -> None:
    cursors = Cursors(SECRET, "/runs", "{}")
    text = cursors.text(place)
    number = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.sampled_from("ABCxyz019-_").filter(lambda one: one != text[number]))
    changed = text[:number] + letter + text[number + 1 :]
    try:
        found = cursors.place(changed, str)
    except Refused:
        return
    # The last letter may hold bits that mean nothing.
    assert (number, found) == (len(text) - 1, place)


@pytest.mark.parametrize(
    "other",
    [
        Cursors(Secret(b"another"), "/runs", "{}"),
        Cursors(SECRET, "/backfills", "{}"),
        Cursors(SECRET, "/runs", '{"status":"FAILED"}'),
    ],
)
def test_one_of_another_list_or_tenant_is_refused(other: Cursors) -> None:
    text = Cursors(SECRET, "/runs", "{}").text("place")
    with pytest.raises(Refused):
        other.place(text, str)


def test_a_place_of_another_kind_is_refused() -> None:
    cursors = Cursors(SECRET, "/runs", "{}")
    with pytest.raises(Refused):
        cursors.place(cursors.text("place"), int)
