"""Patterns of file names: `landing/{date}/*.json`.

    *       any characters of one name          **      any number of folders, as a whole part of the path
    ?       one character of one name           {date}  one or more characters of one name, kept by that name

What begins with a dot is found only where the pattern says a dot, as in a shell. A name that occurs in several parts
of the path has the same text in all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from servo.errors import InvalidInput

DEEP = "**"
_TOKEN = re.compile(r"\*+|\?|\{[^{}/]*\}|[^*?{}]+|[{}]")
_CAPTURE = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://([^/]*)")
_LONGEST = 4_096
_HINT = 'write it as in servo.NewFiles("landing/{date}/*.json")'


class Pattern(NamedTuple):
    """A pattern taken apart: where to begin, and what each part of the path below has to look like."""

    root: str  # a folder, or an address such as s3://bucket/prefix; nothing in it is a pattern
    parts: tuple[str, ...]  # never empty; the last one is of the file
    names: tuple[str, ...]  # that are kept, in order


def read(text: object) -> Pattern:
    """The pattern that a text means, or an InvalidInput that says why it means none."""
    if not isinstance(text, str) or not text.strip() or text != text.strip():
        raise InvalidInput(f"{text!r:.80} is not a pattern of files", hint=_HINT)
    if len(text) > _LONGEST or not text.isprintable():
        raise InvalidInput(f"the pattern {text!r:.60}… is too long, or holds what no path can", hint=_HINT)
    start, rest = _start(text)
    parts = rest.split("/")
    if ".." in parts:
        raise InvalidInput(f"the pattern {text!r:.80} leads out of its folder by ..", hint="begin further up")
    parts = [part for part in parts[:-1] if part not in ("", ".")] + parts[-1:]
    if parts[-1] in ("", ".", DEEP):
        raise InvalidInput(f"the pattern {text!r:.80} names folders, and no file", hint="end it with /* or /*.json")
    names = _captures(text, parts)
    literal = 0
    while literal < len(parts) - 1 and not re.search(r"[*?{}]", parts[literal]):
        literal += 1
    root = start + "/".join(parts[:literal])
    return Pattern(root or ".", tuple(parts[literal:]), names)


def _start(text: str) -> tuple[str, str]:
    """What stands before the first part of the path: nothing, a slash, or the address of a store."""
    store = _SCHEME.match(text)
    if store is None:
        return ("/", text.lstrip("/")) if text.startswith("/") else ("", text)
    if store[1] == "file":
        return "/", text.removeprefix("file://").lstrip("/")
    if not store[2] or re.search(r"[*?{}]|:.*@", store[2]):
        hint = "write s3://bucket/…; who may read it is a matter of the environment"
        raise InvalidInput(f"the pattern {store[1]}://… does not begin with the name of a bucket", hint=hint)
    return f"{store[0]}/", text[store.end() :].lstrip("/")


def _captures(text: str, parts: list[str]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for part in parts:
        here: list[str] = []
        wild = False  # whether what came before has no end of its own
        for token in _tokens(text, part):
            capture = _CAPTURE.fullmatch(token)
            loose = capture is not None or token.startswith("*")
            if loose and wild and (capture is not None or here):
                hint = "put something between them, so that it is clear where one ends"
                raise InvalidInput(f"the pattern {text!r:.80} has two wildcards side by side", hint=hint)
            wild = loose
            if capture is not None:
                if capture[1] in here:
                    raise InvalidInput(f"the pattern {text!r:.80} has {token} twice in one name", hint="leave one out")
                here.append(capture[1])
        names.update(dict.fromkeys(here))
    return tuple(names)


def _tokens(text: str, part: str) -> list[str]:
    if part == DEEP:
        return []
    tokens = _TOKEN.findall(part)
    for token in tokens:
        if token.startswith("**"):
            raise InvalidInput(
                f"the pattern {text!r:.80} has ** in a name", hint="write it as a part: landing/**/*.json"
            )
        if token[0] in "{}" and not _CAPTURE.fullmatch(token):
            hint = "write {name}, in lower-case letters, digits and _"
            raise InvalidInput(f"the pattern {text!r:.80} has {token!r}, which is no name in braces", hint=hint)
    return tokens


def match(part: str, name: str, known: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """What a name is found to hold, by a part of a pattern; None if it does not fit. `known` was found above it."""
    return matcher(part, known or {})(name)


def matcher(part: str, known: Mapping[str, str]) -> Callable[[str], dict[str, str] | None]:
    """The same for many names of one folder."""
    bound = tuple((name, text) for name, text in known.items() if f"{{{name}}}" in part)
    fits, hidden = _compiled(part, bound).fullmatch, part.startswith(".")

    def matched(name: str) -> dict[str, str] | None:
        if name[0:1] == "." and not hidden:
            return None
        found = fits(name)
        return None if found is None else found.groupdict()

    return matched


@lru_cache(maxsize=4_096)
def _compiled(part: str, bound: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    """A wildcard takes as little as it can, for good (an atomic group): no name, however made, takes long to match.

    That loses nothing: where a wildcard ends earlier, the next has more to choose from. Only the last one has to reach
    the end, and so may take more.
    """
    known = dict(bound)
    pieces: list[tuple[str, str]] = []  # a wildcard, and what has to follow it
    for token in _TOKEN.findall(part):
        capture = _CAPTURE.fullmatch(token)
        if capture is not None and capture[1] not in known:
            pieces.append((f"(?P<{capture[1]}>.+?)", ""))
            continue
        if token == "*":
            pieces.append((".*?", ""))
            continue
        fixed = "." if token == "?" else re.escape(known[capture[1]] if capture is not None else token)
        wildcard, follows = pieces.pop() if pieces else ("", "")
        pieces.append((wildcard, follows + fixed))
    last = pieces.pop()
    return re.compile("".join(f"(?>{one}{follows})" for one, follows in pieces) + "".join(last), re.DOTALL)
