"""From `module:function` to the function of a custom mapping, as its code was when the mapping was deployed.

A process that runs for months, such as the control plane, imports the project's modules again when what is deployed has
other code than what it has imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import lru_cache, partial, reduce
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

from servo.assets.code_version import code_of
from servo.assets.importing import IMPORTING, forget, import_named, importable, own_modules
from servo.assets.reach import Reach
from servo.errors import InvalidDefinition, InvalidInput, InvalidPartition
from servo.partitions.mappings import Custom, Mapping, Resolve

_DIGITS = 12
_Function: TypeAlias = Callable[..., Any]
_Stamps: TypeAlias = tuple[tuple[int, int] | None, ...]


class _Wanted(NamedTuple):
    """A function of a project, with the hash of what it said when it was deployed."""

    root: Path
    text: str
    code: str


class _Other(NamedTuple):
    """What was found instead, in files that had these stamps."""

    code: str | None
    files: tuple[str, ...]
    stamps: _Stamps


# By code rather than as imported last: a file that somebody is just editing does no harm to what is deployed.
_found: dict[_Wanted, _Function] = {}
_others: dict[_Wanted, _Other] = {}  # looked at once: whoever asks again each second is not to import each second


@lru_cache(maxsize=8)
def resolver(root: Path) -> Resolve:
    """What finds the functions of custom mappings in the project's modules."""
    return partial(_resolved, root.resolve())


def as_deployed(mapping: Mapping, root: Path) -> Mapping:
    """A mapping of code that was just loaded: it finds its functions, and says what code they have."""
    if not isinstance(mapping, Custom):
        return mapping
    # By name, also where the function itself was given: other processes have nothing but its name.
    named = Custom(mapping.function, mapping.reverse, resolver(root))
    try:
        codes = [_noted(root, text) for text in named.functions]
    except InvalidInput:
        return named  # it is said where the mapping is checked
    return named.with_codes(*codes)


def _noted(root: Path, text: str) -> str | None:
    function = _imported(root, text)
    code = _code(function, Reach(root))
    if code is not None:
        _found[_Wanted(root.resolve(), text, code)] = function
    return code


def _resolved(root: Path, text: str, code: str | None) -> _Function:
    if code is None:
        return _imported(root, text)
    wanted = _Wanted(root, text, code)
    if wanted not in _found:
        with IMPORTING:
            if wanted not in _found:
                _found[wanted] = _imported_again(wanted)
    return _found[wanted]


def _imported_again(wanted: _Wanted) -> _Function:
    """The function of the files as they are now, if that is what was deployed."""
    other = _others.get(wanted)
    if other is None or _stamps(other.files) != other.stamps:
        forget()
        function = _imported(wanted.root, wanted.text)
        reach = Reach(wanted.root)
        code = _code(function, reach)
        if wanted.code in (code, _first_code(function)):
            return function
        files = (*_files(wanted.text, function), *sorted(reach.files.names))
        other = _others[wanted] = _Other(code, files, _stamps(files))
    here = "is not there to be read" if other.code is None else f"is {other.code[:_DIGITS]}"
    raise InvalidDefinition(
        f"the code of the mapping {wanted.text} was deployed as {wanted.code[:_DIGITS]}, but here it {here}",
        hint="run plan and workers from the same checkout, then `servo run retry`",
    )


def _imported(root: Path, text: str) -> _Function:
    name, _, function = text.partition(":")
    try:
        with IMPORTING:  # else it may be one that somebody is just importing
            module = sys.modules.get(name)
            if module is None:
                with importable(root):
                    module = import_named(name, root)
                    own_modules(root)
        found = reduce(getattr, function.split("."), module)
    except (ImportError, AttributeError) as problem:
        hint = "write module:function, of a module in the project's folder"
        raise InvalidPartition(f"there is no function {text!r:.80}: {problem}", hint=hint) from None
    except (Exception, SystemExit) as problem:  # the user's module may raise anything
        said = f"{type(problem).__name__}: {' '.join(str(problem).split())}".removesuffix(": ")
        raise InvalidPartition(f"the module of {text!r:.80} does not load: {said}", hint="mend it") from problem
    if not callable(found):
        raise InvalidPartition(f"{text!r:.80} is not a function", hint="write module:function")
    return cast("_Function", found)


def _code(function: _Function, reach: Reach) -> str | None:
    """The hash of what it says and reaches; None for what has no source, such as a function of C: that changes with a
    package."""
    return None if _first_code(function) is None else reach.code_of(function)


def _first_code(function: _Function) -> str | None:
    """The hash by the first formula, which deployments of earlier versions have."""
    try:
        return code_of(function)
    except InvalidInput:
        return None


def _files(text: str, function: _Function) -> tuple[str, ...]:
    """Where it comes from: the module that is named may have it from another."""
    module = sys.modules.get(text.partition(":")[0])
    places = (getattr(module, "__file__", None), getattr(getattr(function, "__code__", None), "co_filename", None))
    return tuple(place for place in places if isinstance(place, str))


def _stamps(files: tuple[str, ...]) -> _Stamps:
    return tuple([_stamp(file) for file in files])


def _stamp(file: str) -> tuple[int, int] | None:
    try:
        seen = os.stat(file)  # noqa: PTH116 (asked for often, and it is a text already)
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size
