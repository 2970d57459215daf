"""Facts as earlier versions of Servo recorded them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from servo.controllers.requests import request
from servo.events import Proposal
from servo.events.definitions import Source
from servo.events.fact import Fact
from servo.events.model import RunRequested
from servo.ledger.protocol import Condition, Receipt
from servo.operations.runs import handlers
from servo.runtime.keyed_requests import KeyedRequest


class RunRequestedV1(Fact, frozen=True, kw_only=True):
    """A request for a run with five of its fields among the tags."""

    event_type: ClassVar[str] = "RunRequested"
    key: ClassVar[str] = "{self.as_now.idempotency_key}"
    subject: ClassVar[str] = "run_id"
    free_form: ClassVar[bool] = True

    run_id: str
    run_key: str
    request_fingerprint: str
    asset_selection: list[str]
    source: Source
    partitions: dict[str, Any] | None = None
    priority: int = 0
    tags: dict[str, str] = {}
    on_behalf_of: str | None = None
    only_stale: bool = False
    added: dict[str, Any] | None = None
    asset_ids: dict[str, str] = {}

    @property
    def as_now(self) -> RunRequested:
        return RunRequested(
            run_id=self.run_id,
            run_key=self.run_key,
            request_fingerprint=self.request_fingerprint,
            asset_selection=self.asset_selection,
            source=self.source,
        )


def request_before(fact: RunRequested, **more_tags: str) -> RunRequestedV1:
    """A request as version 1 recorded it."""
    hidden = {
        "servo.queue": fact.queue,
        "servo.retry_of": fact.retry_of,
        "servo.accept_schema": "true" if fact.accept_schema else None,
        "servo.traceparent": fact.traceparent,
        "servo.request": fact.body_fingerprint,
    }
    return RunRequestedV1(
        **{name: getattr(fact, name) for name in RunRequestedV1.__struct_fields__ if name != "tags"},
        tags={**fact.tags, **{tag: value for tag, value in hidden.items() if value is not None}, **more_tags},
    )


@contextmanager
def earlier_version(**tags: str) -> Iterator[None]:
    """Requests are recorded as version 1, with fields and these hidden among the tags; their keys are not."""

    def append(
        asking: KeyedRequest, proposals: Sequence[Proposal], condition: Condition | None, *_: object
    ) -> list[Receipt]:
        return asking._project.ledger.append(proposals, condition)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handlers, "run_requested", lambda *how, **more: request_before(request(*how, **more), **tags))
        patch.setattr(KeyedRequest, "append", append)
        yield
