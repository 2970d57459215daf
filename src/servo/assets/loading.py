"""Loads a project: its modules are imported, and what they declare is gathered.

Whatever goes wrong in them is said with the user's file and line, in the error's own words. Nothing is written, not
even bytecode. Loading again forgets the modules of the time before.

The functions of custom mappings are found by their names, with the code that they had when the mapping was deployed. A
process that runs for months, such as the control plane, imports the project's modules again when what is deployed has
other code than what it has imported.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial, reduce
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import msgspec

from servo.assets import graph as graphs
from servo.assets.automation import Schedule, Sensor, require_distinct
from servo.assets.code_version import code_of
from servo.assets.decorator import Asset
from servo.assets.graph import Graph
from servo.assets.importing import (
    IMPORTING,
    LIBRARIES,
    Target,
    forget,
    import_file,
    import_named,
    importable,
    is_within,
    own_modules,
    targets,
)
from servo.assets.reach import Reach, reached_by, recorded, version_of
from servo.assets.selection import require_sound
from servo.assets.spec import AssetSpec, Problem, Source, collecting
from servo.assets.watches import BuiltIn, NewPartitions, RunEnded
from servo.errors import InvalidDefinition, InvalidInput, InvalidPartition, ServoError
from servo.partitions.mappings import Custom, Mapping, Resolve

_beside: set[Path] = set()  # files of modules elsewhere that some load has imported


class Place(Protocol):
    """Where a project is, as its settings say."""

    @property
    def root(self) -> Path: ...
    @property
    def definitions(self) -> str | None: ...
    @property
    def namespace(self) -> str: ...


class Definitions(msgspec.Struct, frozen=True, kw_only=True):
    """What a project declares, assets in topological order, and the files that say so."""

    assets: dict[str, Asset]
    schedules: dict[str, Schedule] = {}
    sensors: dict[str, Sensor] = {}
    graph: Graph
    files: tuple[Path, ...] = ()


def load(place: Place) -> Definitions:
    """The project's definitions; raises InvalidDefinition for the first thing that is wrong with them."""
    definitions, problems = examine(place)
    if problems:
        error = problems[0].error()
        more = len(problems) - 1
        others = f"and {more} more: `servo check` lists them" if more else None
        raise InvalidDefinition(error.message, hint="; ".join(filter(None, (error.hint, others))) or None)
    assert definitions is not None
    return definitions


def examine(place: Place) -> tuple[Definitions | None, list[Problem]]:
    """The project's definitions, or all that is wrong with them."""
    with IMPORTING:
        return _examined(place)


def _examined(place: Place) -> tuple[Definitions | None, list[Problem]]:
    root = place.root.resolve()
    with collecting() as collected, importable(root):
        failed = False
        problems = collected.problems
        forget()
        before = set(sys.modules)
        for target in targets(root, place.definitions):
            try:
                if target.name_is_free:
                    import_named(target.module, root)
                else:
                    import_file(target.module, target.file)
            except InvalidDefinition as problem:  # raised where nobody gathered, such as in another thread
                problems.append(Problem(message=problem.message, hint=problem.hint))
                failed = True
            except (Exception, SystemExit) as problem:  # noqa: BLE001 (the user's module may raise anything)
                problems.append(_explained(problem, target, root))
                failed = True
    modules = own_modules(root)
    _beside.update(_elsewhere(sys.modules.keys() - before - modules.keys()))
    found = list(_declared(collected.declared, modules.values(), root))
    problems = [_relative(problem, root) for problem in problems]
    definitions, more = _definitions(place, root, found)
    if not failed:  # else what a module did not get to declare would be called missing
        problems += more
    if not problems and definitions is not None and not definitions.assets:
        problems.append(_nothing(place))
    problems.sort(key=lambda problem: _place(problem.source))
    return (None if problems else definitions), problems


# ── importing ────────────────────────────────────────────────────────────────────────────────────────────────────


def _elsewhere(names: Iterable[str]) -> Iterator[Path]:
    """Files of modules that lie elsewhere and that no package manager has put there."""
    for name in names:
        file = getattr(sys.modules[name], "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and not file.startswith(LIBRARIES):
            yield Path(file)


def _explained(problem: BaseException, target: Target, root: Path) -> Problem:
    """An error of the user's module: where in the project it happened, and its own words."""
    source = Source(str(target.file), 1)
    for frame, line in traceback.walk_tb(problem.__traceback__):
        file = frame.f_code.co_filename
        if is_within(file, root):
            source = Source(file, line)
    if isinstance(problem, ServoError):
        return Problem(message=problem.message, hint=problem.hint, source=source)
    hint = None
    if isinstance(problem, SyntaxError) and problem.filename and problem.lineno:
        source, said = Source(problem.filename, problem.lineno), problem.msg
    else:
        said = " ".join(str(problem).split())
    if isinstance(problem, ModuleNotFoundError):
        hint = "install it, or mend the import"
    return Problem(message=f"{type(problem).__name__}: {said}".removesuffix(": "), hint=hint, source=source)


def _relative(problem: Problem, root: Path) -> Problem:
    source = problem.source
    return problem if source is None else msgspec.structs.replace(problem, source=_within(source, root))


def _within(source: Source | None, root: Path) -> Source:
    assert source is not None
    return Source(source.file.removeprefix(f"{root}/"), source.line)


def _place(source: Source | None) -> tuple[str, int]:
    return ("", 0) if source is None else (source.file, source.line)


# ── gathering ────────────────────────────────────────────────────────────────────────────────────────────────────


def _declared(declared: list[Any], modules: Iterable[ModuleType], root: Path) -> Iterator[Asset | Schedule | Sensor]:
    """What the project's modules declared, and what they took from elsewhere and hold by name, or in a list or dict of
    that name; each once, however often it is exported."""
    seen: set[int] = set()
    for one in declared:
        source = one.spec.source if isinstance(one, Asset) else one.source
        if is_within(source.file, root):
            seen.add(id(one))
            yield one
    for module in modules:
        for value in list(vars(module).values()):
            if isinstance(value, dict) and value is not vars(module):
                inside: Iterable[Any] = list(value.values())
            else:
                inside = value if isinstance(value, list | tuple | set) else (value,)
            for one in inside:
                if isinstance(one, Asset | Schedule | Sensor) and id(one) not in seen:
                    seen.add(id(one))
                    yield one


def _definitions(
    place: Place, root: Path, found: list[Asset | Schedule | Sensor]
) -> tuple[Definitions | None, list[Problem]]:
    declared = [one for one in found if isinstance(one, Asset)]
    reach = Reach(root)
    assets = [one.bound(_bound(one, place.namespace, root, reach)) for one in declared if not one.broken]
    broken = [one.spec.name for one in declared if one.broken]
    aliases = {one.spec.key: getattr(one.function, "__name__", one.spec.name) for one in assets}
    graph, problems = graphs.examine([one.spec for one in assets], aliases, broken)
    sensors = sorted((one for one in found if isinstance(one, Sensor)), key=lambda one: _place(one.source))
    schedules = [
        msgspec.structs.replace(one, source=_within(one.source, root)) for one in found if isinstance(one, Schedule)
    ]
    schedules += [one.scheduled() for one in assets if one.cron is not None]
    schedules.sort(key=lambda one: _place(one.source))
    sensors = [one.at(_within(one.source, root)) for one in sensors]
    problems += require_distinct("schedule", ((one.name, one.source) for one in schedules))
    problems += require_distinct("sensor", ((one.name, one.source) for one in sensors))
    if graph is None:
        return None, problems
    if not broken:  # else what is selected may be what could not be read
        problems += _unsound(graph, schedules)
        problems += _unwatchable(graph, sensors)
    by_key = {one.spec.key: one for one in assets}
    return (
        Definitions(
            assets={key: by_key[key].bound(spec) for key, spec in graph.specs.items()},
            schedules={one.name: one for one in schedules},
            sensors={one.name: one for one in sensors},
            graph=graph,
            files=tuple(sorted({*_files(root), *_beside, *map(Path, reach.files.names)})),
        ),
        problems,
    )


def _unsound(graph: Graph, schedules: Iterable[Schedule]) -> Iterator[Problem]:
    """Schedules whose selections do not read, or name what is not there."""
    for one in schedules:
        try:
            require_sound(graph, one.select)
        except ServoError as problem:
            yield Problem(message=f"schedule {one.name}: {problem.message}", hint=problem.hint, source=one.source)


class _Graphed(NamedTuple):
    graph: Graph


def _unwatchable(graph: Graph, sensors: Iterable[Sensor]) -> Iterator[Problem]:
    """Sensors that watch, or by themselves ask for, what is not there."""
    for one in sensors:
        try:
            if isinstance(one.watch, NewPartitions):
                graph.resolve(one.watch.asset)
            if isinstance(one.watch, RunEnded) and one.watch.select is not None:
                require_sound(graph, one.watch.select)
            if one.select:
                require_sound(graph, one.select)
            if one.select and isinstance(one.watch, BuiltIn):
                one.watch.require_partitions(one.select, one.partitions, _Graphed(graph))
        except ServoError as problem:
            message = f"sensor {one.name}: {problem.message}"
            yield Problem(message=message, hint=problem.hint, source=one.source)


def _bound(asset: Asset, namespace: str, root: Path, reach: Reach) -> AssetSpec:
    """What was declared, in the project's namespace unless it has its own, with paths from the project's folder, and
    with the version of all the project's code that it reaches."""
    spec = asset.spec
    before = spec.renamed_from
    home = spec.namespace if asset.own_namespace else namespace
    reached = {} if spec.first_version is None else reached_by(asset, reach)
    return msgspec.structs.replace(
        spec,
        code_version=spec.code_version if spec.first_version is None else version_of(reached),
        reached=recorded(reached, spec.source, root),
        key=f"{home}/{spec.name}",
        source=_within(spec.source, root),
        renamed_from=before if before is None or "/" in before else f"{home}/{before}",
        dependencies=tuple(
            one if one.mapping is None else msgspec.structs.replace(one, mapping=as_deployed(one.mapping, root))
            for one in spec.dependencies
        ),
    )


def _files(root: Path) -> Iterator[Path]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and is_within(file, root):
            yield Path(file)


def _nothing(place: Place) -> Problem:
    where = place.definitions or str(place.root)
    return Problem(
        message=f"no assets are declared in {where}",
        hint="write a function with @servo.asset in definitions.py, set `definitions`, or begin with `servo init`",
    )


# ── functions of custom mappings ─────────────────────────────────────────────────────────────────────────────────

_DIGITS = 12
_Function: TypeAlias = Callable[..., Any]
_Stamps: TypeAlias = tuple[tuple[int, int] | None, ...]


class _Wanted(NamedTuple):
    """A function of a project, with the hash of what it said when it was deployed."""

    root: Path
    text: str
    code: str


class _Other(NamedTuple):
    """The other code that was found instead, in files that had these stamps."""

    code: str | None
    files: tuple[str, ...]
    stamps: _Stamps


# By code rather than as imported last: a file that is just being edited does no harm to what is deployed.
_found: dict[_Wanted, _Function] = {}
_others: dict[_Wanted, _Other] = {}  # so that a caller that asks each second does not import each second


@lru_cache(maxsize=8)
def resolver(root: Path) -> Resolve:
    """A function that finds the functions of custom mappings in the project's modules."""
    return partial(_resolved, root.resolve())


def as_deployed(mapping: Mapping, root: Path) -> Mapping:
    """A mapping of code that was just loaded, which finds its functions and knows the hashes of their code."""
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
    function = _function_named(root, text)
    code = _code(function, Reach(root))
    if code is not None:
        _found[_Wanted(root.resolve(), text, code)] = function
    return code


def _resolved(root: Path, text: str, code: str | None) -> _Function:
    if code is None:
        return _function_named(root, text)
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
        function = _function_named(wanted.root, wanted.text)
        reach = Reach(wanted.root)
        code = _code(function, reach)
        if wanted.code in (code, _first_code(function)):
            return function
        files = (*_files_of(wanted.text, function), *sorted(reach.files.names))
        other = _others[wanted] = _Other(code, files, _stamps(files))
    here = "is not there to be read" if other.code is None else f"is {other.code[:_DIGITS]}"
    raise InvalidDefinition(
        f"the code of the mapping {wanted.text} was deployed as {wanted.code[:_DIGITS]}, but here it {here}",
        hint="run plan and workers from the same checkout, then `servo run retry`",
    )


def _function_named(root: Path, text: str) -> _Function:
    name, _, function = text.partition(":")
    try:
        with IMPORTING:  # else it may be one that another thread is just importing
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


def _files_of(text: str, function: _Function) -> tuple[str, ...]:
    """The files that a function comes from: the module that is named may have it from another."""
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
