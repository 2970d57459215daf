"""What an operation is: one request as a value, with all that the doors need to know of it.

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
from typing import Any, ClassVar, Generic, Literal, TypeVar, dataclass_transform, get_args, get_type_hints

import msgspec

from servo import canonical
from servo.operations.fields import Limit, Reason, Version

__all__ = [
    "CONFLICT",
    "FORBIDDEN",
    "NOT_FOUND",
    "PREFIX",
    "UNFIT",
    "Change",
    "Contract",
    "Fields",
    "ListQuestion",
    "Operation",
    "OperationType",
    "Question",
    "Route",
    "VersionedFields",
    "action_of",
    "answer_type",
    "default_of",
    "fields",
    "fingerprint_of",
    "is_asset",
]

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

    @classmethod
    def parse(cls, text: str) -> Route:
        method, path = text.split()
        return cls(method, path)

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


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """What the class of an operation declares beside its fields.

    `client`: the noun and method of the typed client; the noun alone, or nothing, where it is written by hand.
    `page`: of a list, the method that gives one page. `positional`: the fields that these methods take by position,
    where these are not the required ones; `called`: other names that they have for fields; `part`: the part of the
    answer that they give. `refusals`: HTTP statuses of refusals beyond those that every operation may have.
    `slow`: it waits for user code or storage, and must not hold a place among quick reads.
    `shares`: requests of this kind, or about the same thing of this kind, share a bounded number of threads.
    `deploys`: in a project's folder, the definitions of the folder are deployed before it: always, or where the ledger
    does not know what is named; `first`: there and on a server, once it is known to be sound by them (`state.local`)
    and changes something; `regardless`: also where it changes nothing.
    """

    route: Route
    client: str = ""
    page: str = ""
    positional: tuple[str, ...] = ()
    called: dict[str, str] = {}
    part: str = ""
    role: Role = "viewer"
    key: KeyRule = "none"
    example: dict[str, Any] | None = None
    refusals: tuple[int, ...] = ()
    body_required: bool = True
    may_do_nothing: bool = False
    slow: bool = False
    shares: str | None = None
    deploys: Deploys = "never"


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
            kind.contract = Contract(route=Route.parse(route), **keywords)
        made: OperationType = kind
        return made


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Fields(msgspec.Struct, metaclass=OperationType, frozen=True):
    """Fields of an operation, or some that several operations have."""


class Operation(Fields, Generic[A_co]):
    """Something that people can ask for, and be answered with an `A_co`."""

    contract: ClassVar[Contract]
    shared_keywords: ClassVar[dict[str, Any]]

    def __init_subclass__(
        cls,
        *,
        route: str | None = None,
        client: str = "",
        page: str = "",
        positional: tuple[str, ...] = (),
        called: dict[str, str] | None = None,
        part: str = "",
        role: Role = "viewer",
        key: KeyRule = "none",
        example: dict[str, Any] | None = None,
        refusals: tuple[int, ...] = (),
        body_required: bool = True,
        may_do_nothing: bool = False,
        slow: bool = False,
        shares: str | None = None,
        deploys: Deploys = "never",
    ) -> None:
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


class Change(Operation[A_co], role="operator"):
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
    said = {name: value for name, value in msgspec.to_builtins(request).items() if name not in parameters}
    for name in _ADDED_LATER:
        if said.get(name) is None:
            said.pop(name, None)
    return canonical.sha256_hex({"what": what, "body": _canonical(said)})


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
