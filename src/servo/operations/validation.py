"""Whether a request fits its operation, and in which words it is refused."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from servo import decoders
from servo.errors import InvalidInput
from servo.operations.operation import ListQuestion, Operation

__all__ = ["Misfit", "misfit_of", "validated"]

R = TypeVar("R", bound=Operation[Any])

_NAMED_FIELD = re.compile(r"(?:unknown|required) field `(\w+)`")
_ANY_LIMIT = 1  # of a list: how many items a page may have at most is a matter of the network
# How msgspec says it, and how we do.
_WORDS = (
    (re.compile(r"Expected `\w+` of length >= 1$"), "is empty"),
    (re.compile(r"Expected `str` of length <= (\d+)$"), "is longer than {0:,} characters"),
    (re.compile(r"Expected `\w+` of length <= (\d+)$"), "has more than {0:,} entries"),
    (re.compile(r"Expected `\w+` >= (-?[\d.]+)$"), "must be {0:,} or more"),
    (re.compile(r"Expected `\w+` <= (-?[\d.]+)$"), "must be {0:,} or less"),
    (re.compile(r"Expected `\w+` > (-?[\d.]+)$"), "must be more than {0:,}"),
    (re.compile(r"Invalid enum value (.+)$"), "cannot be {0}"),
)


class Misfit(NamedTuple):
    """What is wrong with an input: with which field, in a sentence, and what would be right."""

    field: str
    detail: str
    hint: str | None


def validated(request: R) -> R:
    """The same request, if every field is within its bounds."""
    kind = type(request)
    fields = msgspec.to_builtins(request)
    if isinstance(request, ListQuestion):
        fields["limit"] = min(fields["limit"], _ANY_LIMIT)
    try:
        decoders.convert(fields, kind)
    except msgspec.ValidationError as problem:
        wrong = misfit_of(problem, "the request", kind)
        raise InvalidInput(wrong.detail, hint=wrong.hint, field=wrong.field or None) from None
    return request


def misfit_of(problem: msgspec.ValidationError, what: str, kind: type[msgspec.Struct]) -> Misfit:
    """msgspec says `Expected `int`, got `str` - at `$.limit``: the field, what is wrong with it, and what is valid."""
    message, _, place = str(problem).partition(" - at `$")
    field = place.rstrip("`").lstrip(".")
    hint = None
    if (named := _NAMED_FIELD.search(message)) is not None:
        if "unknown" in message and not field:
            hint = f"it is one of {', '.join(kind.__struct_encode_fields__)}"
        field = f"{field}.{named[1]}".lstrip(".")
        message = "is no such field" if "unknown" in message else "is required"
    elif valid := _choices(kind, field):
        hint = f"it is one of {', '.join(valid)}"
    for pattern, words in _WORDS:
        if (match := pattern.search(message)) is not None:
            values = [_number(value) for value in match.groups()]
            hint = hint or _bounds(kind, field) or "leave it out, or give something"
            return Misfit(field, f"{field or what} {words.format(*values)}", hint)
    return Misfit(field, f"{field or what}: {message}", hint)


def _number(text: str) -> int | float | str:
    try:
        return int(float(text)) if float(text).is_integer() else float(text)
    except ValueError:
        return text


def _bounds(kind: type[msgspec.Struct], field: str) -> str | None:
    """The bounds of a number, or of the length of a text or list, in words."""
    hints = [get_type_hints(kind, include_extras=True).get(field)]
    while hints:
        hint = hints.pop()
        for one in get_args(hint):
            if not isinstance(one, msgspec.Meta):
                hints.append(one)
                continue
            low, high = (one.ge if one.gt is None else one.gt), (one.le if one.lt is None else one.lt)
            if low is not None and high is not None:
                return f"give {low:,} to {high:,}" if one.gt is None else f"give more than {low:,}, {high:,} at most"
            if one.max_length is not None:
                what = "characters" if str in get_args(hint) else "entries"
                return f"give {max(one.min_length or 0, 1):,} to {one.max_length:,} {what}"
    return None


def _choices(kind: type[msgspec.Struct], field: str) -> tuple[str, ...]:
    """What a field may be, where that is one of a few words."""
    found: list[str] = []
    hints = [get_type_hints(kind).get(field)]
    while hints:
        hint = hints.pop()
        if get_origin(hint) is Literal:
            found += [str(one) for one in get_args(hint)]
        else:
            hints += get_args(hint)
    return tuple(found)
