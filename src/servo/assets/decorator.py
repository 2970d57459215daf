"""`@asset`: from a function to a declared asset."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import update_wrapper
from typing import Any, overload

import msgspec

from servo.assets.automation import Schedule, require_cron, require_name
from servo.assets.checks import Check
from servo.assets.code_version import code_version as derived_version
from servo.assets.spec import Approval, AssetSpec, Dependency, Problem, Retry, Source, called_from, declare, report
from servo.errors import InvalidInput
from servo.ids import AssetKey
from servo.partitions import UNPARTITIONED, Dimension, Partitions
from servo.partitions.mappings import Mapping as PartitionMapping

CONTEXT = "context"  # the parameter that is no upstream
DEFAULT_NAMESPACE = "default"


class Dep(msgspec.Struct, frozen=True):
    """An upstream by name (`orders`, `sales/orders`), with the mapping between the partitions."""

    upstream: str | Asset
    mapping: PartitionMapping | None = None


class Asset:
    """A declared asset: what it is (`spec`) and what computes it. Calling it calls the function."""

    def __init__(
        self,
        spec: AssetSpec,
        function: Callable[..., Any],
        *,
        own_namespace: bool,
        broken: bool,
        cron: str | None = None,
    ) -> None:
        update_wrapper(self, function)
        self.spec = spec
        self.function = function
        # Whether the namespace was given, so that the project's does not replace it.
        self.own_namespace = own_namespace
        # Declared so that it cannot be meant; that was reported, and others may still speak of it.
        self.broken = broken
        # When it is materialized by itself.
        self.cron = cron

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(*args, **options)

    def __repr__(self) -> str:
        return f"<asset {self.spec.key}>"

    @property
    def takes_context(self) -> bool:
        return CONTEXT in inspect.signature(self.function).parameters

    def bound(self, spec: AssetSpec) -> Asset:
        """The same function under a spec that knows more, such as the project's namespace."""
        return Asset(spec, self.function, own_namespace=self.own_namespace, broken=self.broken, cron=self.cron)

    def scheduled(self) -> Schedule:
        """The schedule that `schedule=` stands for: named like the asset, by the clock of its first time dimension."""
        zones = [getattr(one, "timezone", None) for one in self.spec.partitions.dimensions if one.timed]
        return Schedule(
            name=_schedule_name(self.spec.name),
            cron=self.cron or "",
            timezone=next(iter(zones), None) or "UTC",
            select=self.spec.key,
            source=self.spec.source,
        )


def _schedule_name(asset: str) -> str:
    return asset.replace(".", "_")


_Upstream = str | Dep | Asset
Deps = Iterable[_Upstream] | Mapping[str, _Upstream | PartitionMapping | None]


@overload
def asset(function: Callable[..., Any], /) -> Asset: ...
@overload
def asset(
    *,
    partitions: Partitions | Dimension | None = None,
    deps: Deps = (),
    batch: bool = False,
    sample: bool = True,
    strict: bool = False,
    code_version: str | None = None,
    freshness: timedelta | None = None,
    checks: Iterable[Check] = (),
    retry: Retry | None = None,
    approval: Approval | None = None,
    schedule: str | None = None,
    owners: Iterable[str] = (),
    tags: Mapping[str, str] | Iterable[str] = (),
    group: str | None = None,
    description: str | None = None,
    key: str | None = None,
    name: str | None = None,
    namespace: str | None = None,
    renamed_from: str | None = None,
) -> Callable[[Callable[..., Any]], Asset]: ...
def asset(function: Callable[..., Any] | None = None, /, **declared: Any) -> Any:
    """Declare an asset. Every parameter of the function but `context` names an upstream whose DataFrame comes in.

    - `partitions`: a definition such as `Daily("date", start="2025-01-01")`, or a product of several.
    - `deps`: upstreams that are no parameter, as a list of names, assets and `Dep`; or a dict from a parameter (or the
      name of an upstream) to a mapping, or to a `Dep` where the upstream is called otherwise than the parameter.
    - `batch`: the function is called once for all partitions of a task, and its output is split.
    - `sample`: with `batch`, whether some partitions are now and then computed alone and compared with what came out
      of the batch, before it is published. False for functions whose output is never the same twice.
    - `strict`: whether rows of partitions that were not asked for are an error. By default they are left out and
      counted. Rows that belong to no partition of the asset are always an error.
    - `code_version`: what tells this code from other code; derived from the function where it is not given.
    - `freshness`: how old a partition may become; `checks`: what must be true of it, by `servo.check`.
    - `retry`, `approval`: a `Retry`, an `Approval`.
    - `schedule`: a cron expression, such as `"0 6 * * *"`, at whose times the latest partition is asked for; in the
      timezone of its partitions. `servo.Schedule` says more.
    - `owners`, `tags`, `group`, `description` (or the docstring): for people and selections.
    - `key` (`sales/orders`), or `name` and `namespace`: by default the function's name and the project's namespace.
    - `renamed_from`: the name it had before; its history comes with it.
    """
    source = called_from()
    if function is not None:
        if declared or not callable(function):
            what = f"@asset: {function!r:.80} is not a function"
            raise Problem(message=what, hint="write @asset or @asset(partitions=…)", source=source).error()
        return _declared(function, source, {})

    def decorate(decorated: Callable[..., Any]) -> Asset:
        return _declared(decorated, source, declared)

    return decorate


def _declared(function: Callable[..., Any], source: Source, options: dict[str, Any]) -> Asset:
    made = _made(function, source, options)
    declare(made)
    return made


def _made(function: Callable[..., Any], source: Source, declared: dict[str, Any]) -> Asset:
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None:
        source = Source(code.co_filename, code.co_firstlineno)
    called = getattr(function, "__name__", "?")
    try:
        spec = _Declaration(**declared).spec(function, source)
        own = declared.get("namespace") is not None or "/" in (declared.get("key") or declared.get("name") or "")
    except (InvalidInput, TypeError) as problem:
        message = problem.message if isinstance(problem, InvalidInput) else _unknown_option(problem)
        hint = problem.hint if isinstance(problem, InvalidInput) else "see help(servo.asset)"
        report(Problem(message=f"asset {called}: {message}", hint=hint, source=source))
        # Reached only where problems are gathered: others may speak of the asset, and are right to.
        stand_in = AssetSpec(key=f"{DEFAULT_NAMESPACE}/{called}", code_version="", source=source)
        return Asset(stand_in, function, own_namespace=False, broken=True)
    return Asset(spec, function, own_namespace=own, broken=False, cron=declared.get("schedule"))


def _unknown_option(problem: TypeError) -> str:
    return f"@asset: {problem}".replace("Unexpected keyword argument", "there is no option")


class _Declaration(msgspec.Struct, kw_only=True):
    """The options of `@asset`, as given."""

    partitions: Any = None
    deps: Any = ()
    batch: Any = False
    sample: Any = True
    strict: Any = False
    code_version: Any = None
    freshness: Any = None
    checks: Any = ()
    retry: Any = None
    approval: Any = None
    schedule: Any = None
    owners: Any = ()
    tags: Any = ()
    group: Any = None
    description: Any = None
    key: Any = None
    name: Any = None
    namespace: Any = None
    renamed_from: Any = None

    def spec(self, function: Callable[..., Any], source: Source) -> AssetSpec:
        for name in ("batch", "sample", "strict"):
            _require(name, getattr(self, name), bool)
        _require("freshness", self.freshness, timedelta, optional=True)
        _require("retry", self.retry, Retry, optional=True)
        _require("approval", self.approval, Approval, optional=True)
        for name in ("group", "description", "renamed_from", "code_version"):
            _require(name, getattr(self, name), str, optional=True)
        if self.freshness is not None and self.freshness <= timedelta(0):
            raise InvalidInput(f"freshness cannot be {self.freshness}", hint="give a positive timedelta")
        if self.code_version == "":
            raise InvalidInput("code_version is empty", hint='write code_version="1"')
        key = self._key(function)
        if self.schedule is not None:
            require_cron("schedule", self.schedule)
            require_name("schedule", _schedule_name(key.name))
        partitions = _partitions(self.partitions)
        dependencies = tuple(_dependencies(function, self.deps))
        checks = _checks(self.checks)
        if self.batch and not partitions.dimensions:
            hint = "leave out batch=True, or give partitions"
            raise InvalidInput("batch=True is for partitioned assets; it has one partition", hint=hint)
        if not self.sample and not self.batch:
            hint = "leave out sample=False, or add batch=True"
            raise InvalidInput("sample=False is for batches, and it is computed one by one", hint=hint)
        derived = None
        if self.code_version is None:
            derived = derived_version(function, declared_json(partitions, dependencies, checks, batch=self.batch))
        return AssetSpec(
            key=str(key),
            partitions=partitions,
            dependencies=dependencies,
            code_version=self.code_version or derived or "",
            first_version=derived,
            batch=self.batch,
            sample=self.sample,
            strict=self.strict,
            checks=checks,
            retry=self.retry or Retry(),
            approval=self.approval,
            freshness=self.freshness,
            group=self.group,
            owners=_texts("owners", self.owners),
            tags=_tags(self.tags),
            description=self.description or inspect.getdoc(function),
            renamed_from=self.renamed_from,
            source=source,
        )

    def _key(self, function: Callable[..., Any]) -> AssetKey:
        given = self.key or self.name or getattr(function, "__name__", "")
        if self.key and (self.name or self.namespace):
            raise InvalidInput("key says it all", hint="leave out name and namespace")
        _require("name", given, str)
        _require("namespace", self.namespace, str, optional=True)
        if "/" in given:
            if self.namespace is not None:
                raise InvalidInput("the namespace is given twice", hint="leave it out of the name")
            return AssetKey.parse(given)
        return AssetKey(namespace=self.namespace or DEFAULT_NAMESPACE, name=given)


def _require(name: str, value: Any, kind: type, *, optional: bool = False) -> None:
    if not isinstance(value, kind) and not (optional and value is None):
        raise InvalidInput(f"{name} cannot be {value!r:.80}", hint=f"give a {kind.__name__}")


def _partitions(given: Any) -> Partitions:
    if given is None:
        return UNPARTITIONED
    try:
        return Partitions.of(given)
    except (TypeError, AttributeError):
        hint = 'give a definition such as Daily("date", start="2025-01-01")'
        raise InvalidInput(f"partitions cannot be {given!r:.80}", hint=hint) from None


def _checks(given: Any) -> tuple[Check, ...]:
    checks = (given,) if isinstance(given, Check) else tuple(given)
    for check in checks:
        if not isinstance(check, Check):
            raise InvalidInput(f"{check!r:.80} is not a check", hint='write checks=[check.not_null("order_id")]')
    names = [check.name for check in checks]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(f"two checks are called {twice}", hint="give one of them another name=")
    return checks


def _texts(name: str, given: Any) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else tuple(given)
    for text in texts:
        _require(name, text, str)
    return texts


def _tags(given: Any) -> dict[str, str]:
    tags = dict(given) if isinstance(given, Mapping) else dict.fromkeys(_texts("tags", given), "")
    for name, value in tags.items():
        _require("tags", name, str)
        _require(f"tag {name}", value, str)
    return tags


# ── upstreams ────────────────────────────────────────────────────────────────────────────────────────────────────


def _dependencies(function: Callable[..., Any], given: Any) -> Iterator[Dependency]:
    """Those of the parameters in their order, then those without a DataFrame."""
    declared: dict[str, list[Dependency]] = {}
    for name, dependency in _given(given):
        if dependency not in (same := declared.setdefault(name, [])):
            same.append(dependency)
    for parameter in _parameters(function):
        named = declared.pop(parameter.name, [])
        if not named and parameter.default is not parameter.empty:
            continue  # a value that the asset's author filled in, such as that of a loop's variable
        one, *others = named or [Dependency(upstream=parameter.name)]
        if others:
            raise _ambiguous(parameter.name, named)
        yield msgspec.structs.replace(one, parameter=parameter.name)
    for rest in declared.values():
        yield from rest


def _ambiguous(parameter: str, named: list[Dependency]) -> InvalidInput:
    upstreams = list(dict.fromkeys(one.upstream for one in named))
    if len(upstreams) == 1:
        return InvalidInput(f"{upstreams[0]} is in deps= with several mappings", hint="name it once, with one of them")
    shown = ", ".join(f'"{upstream.replace("/", "_")}": "{upstream}"' for upstream in upstreams)
    return InvalidInput(
        f"the parameter {parameter} may be {' or '.join(upstreams)}",
        hint=f"give each a parameter of its own: deps={{{shown}}}",
    )


def _parameters(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            hint = "name each upstream as a parameter of its own, or list it in deps="
            raise InvalidInput(f"the parameter {parameter} cannot be an upstream", hint=hint)
        if parameter.name != CONTEXT:
            yield parameter


def _given(deps: Any) -> Iterator[tuple[str, Dependency]]:
    """What `deps=` says, by the name that a parameter would have."""
    entries: Iterable[tuple[str | None, Any]]
    if isinstance(deps, Mapping):
        entries = deps.items()
    elif isinstance(deps, str | Dep | Asset):
        entries = [(None, deps)]
    else:
        entries = [(None, one) for one in deps]
    for alias, one in entries:
        dependency = _dependency(alias, one)
        yield alias or dependency.upstream.rpartition("/")[2], dependency


def _dependency(alias: str | None, given: Any) -> Dependency:
    if isinstance(given, str):
        return Dependency(upstream=given)
    if isinstance(given, Asset):
        return Dependency(upstream=given.spec.key if given.own_namespace else given.spec.name)
    if isinstance(given, Dep):
        upstream = _dependency(None, given.upstream).upstream
        return Dependency(upstream=upstream, mapping=_mapping(upstream, given.mapping))
    if alias is None:
        raise InvalidInput(f"{given!r:.80} is not an upstream", hint='give a name, an asset or Dep("orders", mapping)')
    return Dependency(upstream=alias, mapping=_mapping(alias, given))


def _mapping(upstream: str, given: Any) -> PartitionMapping | None:
    if given is None or isinstance(given, PartitionMapping):
        return given
    hint = f"write {given.__name__}()" if isinstance(given, type) else "give one of servo.mapping, such as Offset(-1)"
    raise InvalidInput(f"the mapping to {upstream} cannot be {given!r:.80}", hint=hint)


# ── the code version ─────────────────────────────────────────────────────────────────────────────────────────────

# Where a definition begins and ends, and which values it has, says which partitions there are, not what is in them.
_EXTENT = frozenset({"start", "end", "values"})


def declared_json(
    partitions: Partitions, dependencies: tuple[Dependency, ...], checks: tuple[Check, ...], *, batch: bool
) -> dict[str, Any]:
    """What is declared beside the function and changes what is computed."""
    return {
        "partitions": _shape(partitions.to_json()),
        "dependencies": [
            [one.parameter, one.upstream, None if one.mapping is None else one.mapping.to_json()]
            for one in dependencies
        ],
        "batch": batch,
        "checks": [check.to_json() for check in checks],
    }


def _shape(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _shape(one) for name, one in data.items() if name not in _EXTENT}
    return [_shape(one) for one in data] if isinstance(data, list) else data
