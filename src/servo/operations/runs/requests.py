"""What can be asked of runs."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from servo.answers.runs import (
    CancelRequested,
    DueRequested,
    Record,
    Requested,
    RunConflict,
    RunListed,
    RunPlan,
    RunProgress,
    RunView,
    TaskView,
)
from servo.operations.fields import Name, Partitions, Priority, Reason, Since, Tags, Text, Until
from servo.operations.operation import CONFLICT, NOT_FOUND, UNFIT, Change, Fields, ListQuestion, Question

RunStatus = Literal["REQUESTED", "PLANNED", "RUNNING", "CANCELLING", "SUCCEEDED", "FAILED", "CANCELLED"]
Selections = Annotated[tuple[Text, ...], Meta(min_length=1, max_length=1_000)]


class RunFields(Fields):
    """What a run is of, and how it is run."""

    select: Selections
    partitions: Partitions = None
    priority: Priority = 0
    tags: Tags = {}
    accept_schema: Annotated[bool, Meta(description="Take a changed schema as it is.")] = False


class CreateRun(
    Change[Requested],
    RunFields,
    route="POST /runs",
    client="runs.create",
    key="required",
    deploys="first",
    positional=("select", "partitions"),
    example={"select": ["+revenue"], "partitions": "2025-01-15"},
):
    """Ask for a run. What cannot run is refused, and nothing is recorded.

    Frozen partitions are left out of ranges, and refused by name; `unfreeze` is the reason to thaw them.
    """

    unfreeze: (
        Annotated[str, Meta(description="Thaw what is frozen of it, for this reason.", max_length=4_000)] | None
    ) = None


class CreateDueRun(
    Change[DueRequested],
    RunFields,
    route="POST /runs/due",
    client="runs.create_due",
    positional=("select", "partitions"),
    part="run",
    key="required",
    deploys="regardless",
    example={"select": ["+revenue"]},
    may_do_nothing=True,
):
    """Ask for a run of what should run now; where that is nothing, nothing is recorded and `run_id` is null."""


class RetryRun(
    Change[Requested],
    route="POST /runs/{run_id}/retry",
    client="runs.retry",
    key="required",
    deploys="first",
    example={"everything": False},
):
    """Run again what failed, was skipped or cancelled, as a new run with today's definitions."""

    run_id: Name
    partitions: Annotated[str, Meta(description="Only these of those.", max_length=100_000)] | None = None
    everything: Annotated[bool, Meta(description="All that the run was asked for, not only what failed.")] = False


class CancelRun(
    Change[CancelRequested],
    route="POST /runs/{run_id}/cancel",
    client="runs.cancel",
    key="optional",
    example={"reason": "the source is wrong"},
    refusals=(NOT_FOUND, CONFLICT),
):
    """Ask for a run to stop: nothing more of it starts, and what it has published stays."""

    run_id: Name
    reason: Reason = None


class PlanRun(
    Question[RunPlan],
    route="POST /plan",
    client="runs.plan",
    positional=("select", "partitions"),
    example={"select": ["+revenue"], "partitions": "2025-01-15"},
    refusals=(NOT_FOUND, UNFIT),
):
    """Say what a run of the same body would do, stage by stage; nothing is written."""

    select: Selections
    partitions: Partitions = None
    stale: Annotated[bool, Meta(description="Of these, what should run now: stale, missing, and what follows.")] = False


class ListRuns(ListQuestion[RunListed], route="GET /runs", client="runs.list", page="page", refusals=(NOT_FOUND,)):
    """List runs, newest first."""

    status: RunStatus | None = None
    asset: Annotated[str, Meta(description="Only runs that compute this asset.", max_length=500)] | None = None
    since: Since = None
    until: Until = None


class GetRun(Question[RunView], route="GET /runs/{run_id}", client="runs.get"):
    """Show a run: its tasks, what failed, which checks did not pass, and what waits for a person."""

    run_id: Name


class GetProgress(Question[RunProgress], route="GET /runs/{run_id}/progress", client="runs.progress"):
    """Say how far a run is: its tasks in the order of its plan, and how many partitions of each came to what."""

    run_id: Name


class ListTasks(ListQuestion[TaskView], route="GET /runs/{run_id}/tasks", client="runs.tasks"):
    """List the tasks of a run by their keys."""

    run_id: Name


class ListLogs(ListQuestion[Record], route="GET /runs/{run_id}/logs", client="runs"):
    """List what the tasks of a run have said, oldest first.

    Until the run has ended, there is always a cursor to go on from.
    """

    run_id: Name
    task: Annotated[str, Meta(description="Only of this task: its key, or its asset's.", max_length=500)] | None = None


class ListConflicts(ListQuestion[RunConflict], route="GET /conflicts", client="conflicts.list", tag="runs"):
    """List requests whose run key stands for another run, newest first: they were recorded, and started nothing."""

    run_key: Annotated[str, Meta(description="Only those about this run key.", max_length=1_000)] | None = None
