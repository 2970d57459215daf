"""The routes of backfills."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from litestar import Controller, Response, get, post
from litestar.params import FromPath
from msgspec import Meta

from servo.answers.backfills import Backfilled, BackfillTree, BackfillView, ChunkView, Steered
from servo.api.desk import AtDesk, Found, plain
from servo.api.first_backfills import recorded
from servo.api.glimpses import Glimpse
from servo.api.inputs import Listing, Reading, Text, Within
from servo.api.keys import Keyed
from servo.api.operations import operation
from servo.api.steering import Steering
from servo.errors import InvalidInput
from servo.runtime.backfill_book import BackfillBook
from servo.runtime.backfill_loading import backfills_of
from servo.runtime.backfill_planning import BackfillRequest
from servo.runtime.backfills import Backfills
from servo.runtime.documents import backfill_listed, plan_shown

__all__ = ["BackfillRoutes"]

_NOT_FOUND, _CONFLICT, _UNFIT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY
_EXAMPLE = {"assets": ["revenue"], "start": "2025-01-01", "end": "2025-01-31", "chunk_size": 10}

_CONCURRENCY = 2

States = Literal["PENDING", "WAITING_UPSTREAM", "RUNNING", "PAUSED", "SUCCEEDED", "FAILED", "CANCELLED"]


class NewBackfill(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which partitions of which assets, in which chunks. A range, a list and a filter may be combined."""

    assets: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=1_000)]
    start: Text | None = None
    end: Text | None = None
    partitions: Annotated[str, Meta(min_length=1, max_length=100_000)] | None = None
    filter: Literal["missing", "failed", "stale"] | None = None
    chunk_size: Annotated[int, Meta(ge=1, le=1_000_000)] = 10
    target_chunk_seconds: Annotated[float, Meta(gt=0, le=31_536_000)] | None = None
    max_concurrent_runs: (
        Annotated[int, Meta(ge=1, le=10_000, description="Runs of it at the same time: 2 unless given.")] | None
    ) = None
    concurrency: Annotated[int, Meta(ge=1, le=10_000, description="The same, under its older name.")] | None = None
    include_upstream: bool = False
    max_upstream_depth: Annotated[int, Meta(ge=-1, le=1_000_000)] | None = None
    include_downstream: bool = False
    only_missing: bool = False
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31)] = 0
    newest_first: bool = False
    name: Annotated[str, Meta(min_length=1, max_length=100)] | None = None

    @property
    def request(self) -> BackfillRequest:
        if self.concurrency is not None and self.max_concurrent_runs not in (None, self.concurrency):
            raise InvalidInput(
                f"max_concurrent_runs is {self.max_concurrent_runs}, and concurrency, its older name, another number",
                hint="give max_concurrent_runs alone",
                field="max_concurrent_runs",
            )
        said = {name: getattr(self, name) for name in BackfillRequest.__struct_fields__ if name != "cause"}
        return BackfillRequest(**said | {"concurrency": self.max_concurrent_runs or self.concurrency or _CONCURRENCY})


class BackfillsAsked(Within, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Annotated[States | None, Meta(description="Only with a job that stands so.")] = None
    asset: Annotated[str, Meta(description="Only with a job of this asset.", max_length=500)] | None = None


class BackfillRoutes(Controller):
    path = "/backfills"
    tags = ["backfills"]

    @post(
        opt=operation(
            "operator",
            shape="accepted",
            answers=Backfilled,
            body=NewBackfill,
            keyed="required",
            example=_EXAMPLE,
            refusals=(_NOT_FOUND, _CONFLICT, _UNFIT),
        )
    )
    async def create(self, desk: AtDesk) -> Response[bytes]:
        """Ask for a backfill with all jobs of its tree, in one append. Whoever works here does it."""
        body = await desk.body(NewBackfill)
        key = desk.require_key(body)

        def work() -> dict[str, Any]:
            made = Backfills(desk.project).create(body.request, request_id=key, actor=desk.actor)
            return recorded(desk.project, made)

        return await desk.change(work)

    @get(opt=operation("viewer", shape="page", query=BackfillsAsked, refusals=(_NOT_FOUND,)))
    async def list(self, desk: AtDesk) -> Response[bytes]:
        """List backfills with their trees, newest first."""
        asked = desk.query(BackfillsAsked)
        since, until = asked.begin, asked.end

        def work(here: Glimpse, before: str | None) -> Found[Any]:
            trees = BackfillBook(here.project).newest(
                state=asked.status, asset=asked.asset, since=since, until=until, before=before, limit=asked.limit + 1
            )
            return Found(items=[backfill_listed(tree) for tree in trees])

        return await desk.page(asked, work, place=lambda tree: tree["root"].backfill_id, kind=str, timeless=True)

    @post(
        "/preview",
        status_code=HTTPStatus.OK,
        opt=operation("viewer", shape="plain", body=NewBackfill, example=_EXAMPLE, refusals=(_NOT_FOUND, _UNFIT)),
    )
    async def preview(self, desk: AtDesk) -> Response[bytes]:
        """Say what the same body would come to; nothing is written."""
        asked = (await desk.body(NewBackfill)).request
        return plain(await desk.threads.answer(lambda: plan_shown(Backfills(desk.project).preview(asked))))

    @get("/{backfill:str}", opt=operation("viewer", answers=BackfillView, query=Reading, refusals=(_NOT_FOUND,)))
    async def show(self, backfill: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Show a backfill, by its name or id: how far it is, how fast, and until when."""
        return await desk.one(desk.query(Reading), lambda here: _tree(here, backfill).root, timeless=True)

    @get("/{backfill:str}/tree", opt=operation("viewer", answers=BackfillTree, query=Reading, refusals=(_NOT_FOUND,)))
    async def tree(self, backfill: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Show it with all jobs of its tree, and what failed first."""
        return await desk.one(desk.query(Reading), lambda here: _tree(here, backfill), timeless=True)

    @get(
        "/{backfill:str}/chunks",
        opt=operation("viewer", shape="page", answers=ChunkView, query=Listing, refusals=(_NOT_FOUND,)),
    )
    async def chunks(self, backfill: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """List the chunks that were planned, by their number."""
        asked = desk.query(Listing)

        def work(here: Glimpse, after: int | None) -> Found[Any]:
            backfill_id, root = Backfills(here.project).find(backfill)
            job = backfills_of(here.project, [root]).jobs[backfill_id]
            first = -1 if after is None else after
            rows = BackfillBook(here.project).chunks(job, after=first, limit=asked.limit + 1)
            return Found(items=rows, more={"backfill_id": backfill_id, "name": job.fact.name})

        return await desk.page(asked, work, place=lambda chunk: chunk.chunk_index, kind=int, timeless=True)

    @post(
        "/{backfill:str}/pause",
        opt=operation(
            "operator",
            shape="accepted",
            answers=Steered,
            body=Steering,
            body_required=False,
            keyed="optional",
            refusals=(_NOT_FOUND, _CONFLICT),
        ),
    )
    async def pause(self, backfill: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Start no more chunks; those at work finish. Of a root, in its whole tree."""
        return await self._steer(desk, partial(Backfills(desk.project).pause, backfill))

    @post(
        "/{backfill:str}/resume",
        opt=operation(
            "operator",
            shape="accepted",
            answers=Steered,
            body=Steering,
            body_required=False,
            keyed="optional",
            refusals=(_NOT_FOUND, _CONFLICT),
        ),
    )
    async def resume(self, backfill: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Go on with the next chunk. Of a root, in its whole tree."""
        return await self._steer(desk, partial(Backfills(desk.project).resume, backfill))

    @post(
        "/{backfill:str}/cancel",
        opt=operation(
            "operator",
            shape="accepted",
            answers=Steered,
            body=Steering,
            body_required=False,
            keyed="optional",
            refusals=(_NOT_FOUND, _CONFLICT),
        ),
    )
    async def cancel(self, backfill: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """End it and its runs; what they have made stays. Of a root, its whole tree."""
        return await self._steer(desk, partial(Backfills(desk.project).cancel, backfill))

    @post(
        "/{backfill:str}/retry-failed",
        opt=operation(
            "operator",
            shape="accepted",
            answers=Backfilled,
            body=Keyed,
            body_required=False,
            keyed="required",
            refusals=(_NOT_FOUND, _CONFLICT),
        ),
    )
    async def retry_failed(self, backfill: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Compute again exactly the partitions that failed in one that has ended, as a new backfill."""
        key = desk.require_key(await desk.body(Keyed, required=False))

        def work() -> dict[str, Any]:
            made = Backfills(desk.project).retry_failed(backfill, request_id=key, actor=desk.actor)
            return recorded(desk.project, made)

        return await desk.change(work)

    async def _steer(self, desk: AtDesk, steer: Callable[..., Steered]) -> Response[bytes]:
        body = await desk.body(Steering, required=False)
        return await desk.once(
            desk.key(body),
            body,
            lambda: steer(expected_version=body.expected_state_version, reason=body.reason, actor=desk.actor),
        )


def _tree(here: Glimpse, backfill: str) -> BackfillTree:
    return BackfillBook(here.project).tree(*Backfills(here.project).find(backfill))
