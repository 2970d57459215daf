"""Operations: one request as a value, with all that the doors need to know of it, and whether its fields are valid.

An operation is declared once, as a frozen struct. Its fields are the input, with their constraints and descriptions;
its class says the answer's type, the route, the role and whether it takes an idempotency key:

    class PauseSchedule(Change[Changed], route="POST /schedules/{schedule}/pause", key="optional"):
        \"\"\"Record its ticks as skipped from now on; they are never made up.\"\"\"

        schedule: Name
        reason: Reason = None

The HTTP routes, the OpenAPI document, the typed client and the switch between folder and server are loops over the
table of these classes (`servo.operations.table`). What an operation does is declared elsewhere
(`servo.operations.handling`), so that a client can know all requests without loading what answers them.
"""

from __future__ import annotations

import re
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from servo import canonical, decoders
from servo.errors import InvalidInput
from servo.operations.fields import Limit, Reason, Version

A_co = TypeVar("A_co", covariant=True)

Role = Literal["viewer", "operator", "approver", "admin"]
KeyRule = Literal["none", "optional", "required"]
Deploys = Literal["never", "unknown", "always", "first", "regardless"]

FORBIDDEN, NOT_FOUND, CONFLICT, UNFIT = 403, 404, 409, 422

PREFIX = "/api/v1/orchestration"
"""Of the path of every route."""

# Optional fields that earlier versions did not have: left out, a request is the one that it was then.
_ADDED_LATER = ("unfreeze",)
_PARAMETER = re.compile(r"\{(\w+)\}")


class Route(msgspec.Struct, frozen=True):
    """A method and a path below the API's prefix; `{name}` stands for the field of that name."""

    method: str
    path: str

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(_PARAMETER.findall(self.path))

    @property
    def has_body(self) -> bool:
        """Whether the fields that are not in the path travel in the body; else they are behind the question mark."""
        return self.method in ("POST", "PATCH", "PUT")

    def filled(self, request: Operation[Any]) -> str:
        """The path of one request."""
        return _PARAMETER.sub(lambda found: str(getattr(request, found[1])), self.path)


class Contract(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the class of an operation declares beside its fields.

    `client`: the noun and method of the typed client; the noun alone, or nothing, where it is written by hand.
    `tag`: the group of the documentation, where it is not the noun of the client.
    `page`: of a list, the method that gives one page. `positional`: the fields that these methods take by position,
    where these are not the required ones; `called`: other names that they have for fields; `part`: the part of the
    answer that they give. `refusals`: HTTP statuses of refusals beyond those that every operation may have; of a
    question, unless given, 404 where its path names a thing. `body_required`: unless given, whether a field of it is.
    `slow`: it waits for user code or storage, and must not hold a place among quick reads.
    `shares`: requests of this kind, or about the same thing of this kind, share a bounded number of threads.
    `deploys`: in a project's folder, the definitions of the folder are deployed before it: always, or where the ledger
    does not know what is named; `first`: there and on a server, once it is known to be sound by them (`state.local`)
    and changes something; `regardless`: also where it changes nothing.
    """

    route: Route
    client: str = ""
    tag: str = ""
    page: str = ""
    positional: tuple[str, ...] = ()
    called: dict[str, str] = {}
    part: str = ""
    role: Role = "viewer"
    key: KeyRule = "none"
    example: dict[str, Any] | None = None
    refusals: tuple[int, ...] = ()
    body_required: bool | None = None
    may_do_nothing: bool = False
    slow: bool = False
    shares: str | None = None
    deploys: Deploys = "never"

    @property
    def noun(self) -> str:
        """The group of operations that the documentation shows it in."""
        return self.tag or self.client.partition(".")[0]


class OperationType(msgspec.StructMeta):
    """The class of operation classes: takes the contract as keywords, and makes each of them a strict frozen struct.

    A class without a route is no operation yet: its fields and keywords are those that several operations share.
    """

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        route: str | None = None,
        frozen: bool = True,
        **keywords: Any,
    ) -> OperationType:
        kind: Any = super().__new__(
            mcls, name, bases, namespace, frozen=frozen, kw_only=True, forbid_unknown_fields=True
        )
        for base in bases:
            keywords = {**getattr(base, "shared_keywords", {}), **keywords}
        if route is None:
            kind.shared_keywords = keywords
        else:
            method, path = route.split()
            keywords = {"refusals": (NOT_FOUND,) if _PARAMETER.search(path) else (), **keywords}
            kind.contract = decoders.convert({"route": {"method": method, "path": path}, **keywords}, Contract)
        made: OperationType = kind
        return made


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Fields(msgspec.Struct, metaclass=OperationType, frozen=True):
    """Fields of an operation, or some that several operations have."""


class Operation(Fields, Generic[A_co]):
    """Something that people can ask for, and be answered with an `A_co`."""

    contract: ClassVar[Contract]
    shared_keywords: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Tells type checkers the keywords of an operation's class; `OperationType` makes the contract of them."""

    @property
    def needs_no_key(self) -> bool:
        """Whether this very request writes nothing, and so takes no key though its kind does."""
        return False


class Question(Operation[A_co]):
    """Asks for one thing and changes nothing."""


class ListQuestion(Operation[A_co]):
    """Asks for a list of `A_co`, a page at a time, and changes nothing."""

    limit: Limit = 50


class Change(Operation[A_co], role="operator", refusals=(NOT_FOUND, CONFLICT, UNFIT)):
    """Asks for something to be recorded."""


class VersionedFields(Fields):
    """Why a thing is changed, and at which version of it alone."""

    reason: Reason = None
    expected_state_version: Version = None


def answer_type(kind: type[Operation[Any]]) -> Any:
    """The type that an operation is answered with; of a list, the type of its items."""
    return _declared(kind)[0]


def fields(kind: type[Operation[Any]]) -> dict[str, Any]:
    """The fields of an operation with their annotated types."""
    return _declared(kind)[1]


def requires_body(kind: type[Operation[Any]]) -> bool:
    """Whether a request of this kind is refused without a body."""
    if kind.contract.body_required is not None:
        return kind.contract.body_required
    parameters = kind.contract.route.parameters
    return any(field.required and field.name not in parameters for field in msgspec.structs.fields(kind))


def is_asset(hint: Any) -> bool:
    """Whether a field names an asset, which is one segment of a path or two."""
    return any(isinstance(one, msgspec.Meta) and (one.extra or {}).get("asset") for one in get_args(hint))


_DECLARED: dict[type[Any], tuple[Any, dict[str, Any]]] = {}


def _declared(kind: type[Operation[Any]]) -> tuple[Any, dict[str, Any]]:
    if kind not in _DECLARED:
        generic = [base for one in kind.__mro__ for base in vars(one).get("__orig_bases__", ())]
        answers = [get_args(base)[0] for base in generic if get_args(base)]
        hints = get_type_hints(kind, include_extras=True)
        _DECLARED[kind] = answers[0], {name: hints[name] for name in kind.__struct_fields__}
    return _DECLARED[kind]


def default_of(kind: type[Operation[Any]], name: str) -> Any:
    """The default of a field, for who has to tell people of it."""
    return next(field.default for field in msgspec.structs.fields(kind) if field.name == name)


# ── identity ─────────────────────────────────────────────────────────────────────────────────────────────────────


def action_of(request: Operation[Any]) -> str:
    """The method and full path of a request."""
    route = type(request).contract.route
    return f"{route.method} {PREFIX}{route.filled(request)}"


def fingerprint_of(what: str, request: Operation[Any]) -> str:
    """The hash of what is asked for: the same fields with the same values, however they are written."""
    parameters = type(request).contract.route.parameters
    body = {name: value for name, value in msgspec.to_builtins(request).items() if name not in parameters}
    for name in _ADDED_LATER:
        if body.get(name) is None:
            body.pop(name, None)
    return canonical.sha256_hex({"what": what, "body": _canonical(body)})


def _canonical(value: Any) -> Any:
    """The value in canonical JSON, which has no floats and no texts that are not Unicode."""
    match value:
        case float():
            return repr(value)
        case str() if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            return {"bytes": value.encode(errors="surrogatepass").hex()}
        case dict():
            return {name: _canonical(one) for name, one in value.items()}
        case list() | tuple():
            return [_canonical(one) for one in value]
    return value


# ── validation ───────────────────────────────────────────────────────────────────────────────────────────────────


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
