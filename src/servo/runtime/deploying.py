"""Deployment of a project's definitions, by one event; and what is deployed, now or at a time of the past."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from servo.assets.loading import Definitions as LoadedDefinitions
from servo.assets.loading import load
from servo.errors import AppendConflict, IdempotencyMismatch, InvalidDefinition, LedgerNotFound
from servo.events import Proposal
from servo.events.model import DEFINITIONS, DefinitionsDeployed, DynamicPartitionsChanged
from servo.ledger.protocol import Condition
from servo.planning.catalog import Catalog, Definitions, DeployedState, present
from servo.planning.deployment import Commit, changes_of, deployment_facts, preview, state_after
from servo.planning.history import HistoryChange, HistoryChangeKind
from servo.runtime.definitions_cache import quick_catalog, remember
from servo.runtime.wiring import Project
from servo.status.deployed import deployed_in

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

log = logging.getLogger(__name__)

_TRIES = 20
_FEW = 1_000  # events that are read sooner than the projections are asked
_CHANGES = frozenset({DefinitionsDeployed.event_type, DynamicPartitionsChanged.event_type})
_NAMES = """
    SELECT asset_key, asset_id FROM asset_versions WHERE asset_key IS NOT NULL ORDER BY number, asset_id
"""
_GIT_SECONDS = 5.0  # for each question: a deployment does not wait longer for a repository of any size
_CODE = ("*.py", "*.toml", "*.sql", "*.yaml", "*.yml", "*.json")
# Set inside a hook, where they name the repository that is being committed to.
_GIT_VARIABLES = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"})


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """What is deployed now. `changed` says whether that was recorded just now, by the event of this id."""

    catalog: Catalog
    changed: bool
    event_id: str | None = None
    changes: tuple[HistoryChange, ...] = ()  # what it did to the history of assets

    @property
    def added(self) -> tuple[str, ...]:
        """Keys of assets that were not there before, under whatever name."""
        kinds = (HistoryChangeKind.NEW, HistoryChangeKind.BACK)
        return tuple(one.asset_key for one in self.changes if one.kind in kinds)

    @property
    def removed(self) -> tuple[str, ...]:
        """Keys of assets that are no longer there, under whatever name."""
        return tuple(one.asset_key for one in self.changes if one.kind is HistoryChangeKind.REMOVED)


def deploy(
    project: Project,
    definitions: LoadedDefinitions,
    *,
    actor: str = "controller:deploy",
    tell: Callable[[Sequence[HistoryChange]], None] | None = None,
) -> Deployment:
    """Make the definitions take effect, unless they are what is deployed already. Of two who deploy at once, the
    later one looks again. `tell` is given what that does to history, before it is recorded; else it is logged."""
    settings = project.settings
    told: tuple[HistoryChange, ...] = ()
    for attempt in range(_TRIES):
        state, now = deployed_state(project), project.clock()
        facts = deployment_facts(
            state,
            definitions,
            now=now,
            mint=project.mint,
            mint_asset=lambda _: project.new_asset_id(),
            commit=lambda: commit_of(settings.root, settings.home),
        )
        if not facts:
            catalog = state.catalog(settings.root)
            remember(settings, definitions, catalog)
            project.deployment_cache.saw(catalog.event_id, state.position)
            return Deployment(catalog=catalog, changed=False)
        changes = changes_of(state, definitions)
        if changes != told:
            told = changes
            (tell or _log)(changes)
        deployed = facts[0]
        assert isinstance(deployed, DefinitionsDeployed)
        proposals = [
            Proposal(fact=fact, occurred_at=now, actor=actor, correlation_id=DEFINITIONS if fact is deployed else None)
            for fact in facts
        ]
        condition = Condition(position=state.position, subjects=frozenset({DEFINITIONS, *state.automations}))
        try:
            receipt = project.ledger.append(proposals, condition)[0]
        except (AppendConflict, IdempotencyMismatch):
            if attempt == _TRIES - 1:
                raise
            continue
        catalog = Catalog.of(
            definitions.graph.specs.values(),
            {asset.asset_key: asset.asset_id for asset in deployed.assets},
            deployment_id=deployed.deployment_id,
            number=deployed.number,
            definitions_hash=deployed.definitions_hash,
            dynamic=state.dynamic,
            position=receipt.position,
            event_id=receipt.event_id,
        )
        remember(settings, definitions, catalog)
        return Deployment(catalog=catalog, changed=True, event_id=receipt.event_id, changes=changes)
    raise AssertionError("the loop ends by returning or raising")


def _log(changes: Sequence[HistoryChange]) -> None:
    """Warn of changes to the history of assets that were there before."""
    for change in changes:
        if change.kind not in (HistoryChangeKind.NEW, HistoryChangeKind.BACK):
            log.warning("deploying: %s", change.sentence(), extra={"action": "deploy.history"})


def deployed_state(project: Project, as_of: datetime | str | None = None) -> DeployedState:
    """The definitions that the ledger knows, now or as of then."""
    if as_of is None and project.ledger.head().position == 0:
        return DeployedState(position=0)  # a project's first command need not load DuckDB for this
    return deployed_in(project.tables(as_of))


def asset_names(project: Project) -> dict[str, str]:
    """The ids of assets by every name that they ever had, by the ledger as it is now."""
    with suppress(LedgerNotFound):
        return asset_names_in(project.tables())
    return {}


def asset_names_in(snapshot: Answers) -> dict[str, str]:
    """The ids of assets by every name that they ever had, as of a snapshot."""
    return dict(snapshot.query(_NAMES).rows)


def with_other_names(project: Project, known: Catalog) -> Catalog:
    """The same catalog, in which an asset is found by every name that it ever had, as long as no other has it."""
    return known.with_other_names(lambda: asset_names(project))


def recorded_catalog(project: Project, as_of: datetime | str | None = None) -> Catalog:
    """The catalog of what is deployed, now or as of a moment or an event."""
    return with_other_names(project, deployed_state(project, as_of).catalog(project.settings.root))


def in_force(project: Project, known: Catalog) -> bool:
    """Whether a remembered catalog is still what is deployed; False also where it would take long to tell."""
    if known.event_id is None:
        return False
    head = project.ledger.head()
    until = project.deployment_cache.until(known.event_id)
    if until is None or until > head.position:
        if head.trimmed_position >= known.position or head.position - known.position > _FEW:
            return False
        first = project.ledger.read(known.position - 1, 1)
        # By its id: the ledger may be another one than it was.
        if not first or first[0].event_id != known.event_id:
            return False
        until = known.position
    if head.trimmed_position > until:
        return False
    while until < head.position:
        events = project.ledger.read(until, _FEW)
        if not events or any(event.event_type in _CHANGES for event in events):
            return False
        until = events[-1].position
    project.deployment_cache.saw(known.event_id, until)
    return True


def deployed_catalog(project: Project, *, actor: str) -> Catalog:
    """Deploy the definitions of the project's folder where they are not in force yet; the catalog of them."""
    if (known := catalog_in_force(project)) is not None:
        return known
    return with_other_names(project, deploy(project, load(project.settings), actor=actor).catalog)


def catalog_in_force(project: Project) -> Catalog | None:
    """The catalog of the last deployment from this folder, while neither its files nor what is deployed changed."""
    known = quick_catalog(project.settings)
    return with_other_names(project, known) if known is not None and in_force(project, known) else None


def as_deployed(project: Project, state: DeployedState) -> Definitions:
    """The deployed definitions; the project's folder is not read."""
    return Definitions(state=state, catalog=state.catalog(project.settings.root))


def as_in_folder(project: Project, state: DeployedState) -> Definitions:
    """The definitions of the project's folder, as they would be deployed; nothing is written."""
    known = None if project.unbegun else quick_catalog(project.settings)
    if known is not None and in_force(project, known):
        declared = {one.name: one.declared_at or "" for one in present(state.schedules) if one.is_declared}
        return Definitions(state=state, catalog=known, declared_schedules=declared)
    loaded = load(project.settings)
    facts = deployment_facts(state, loaded, now=project.clock(), mint=project.mint, mint_asset=lambda key: key)
    after, changed = state_after(facts, state)
    return Definitions(
        state=after,
        catalog=preview(loaded, state),
        declared_schedules={name: str(one.source) for name, one in loaded.schedules.items()},
        undeployed=frozenset(changed),
    )


def for_reading(project: Project, state: DeployedState) -> Definitions:
    """The definitions of the folder; where it does not load, the deployed ones, with a warning."""
    try:
        return as_in_folder(project, state)
    except InvalidDefinition as problem:
        if project.unbegun:
            raise
        log.warning("shown as deployed, for the folder does not load: %s", problem.message)
        return as_deployed(project, state)


# ── git ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def commit_of(root: Path, home: Path) -> Commit:
    """The commit that a project's folder is at. Never raises.

    Files that git does not know make the tree unclean if they may be code, unless git ignores them or they are in
    Servo's own folder.
    """
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    if not commit:
        return Commit()
    own = [f":(exclude){home.relative_to(root)}"] if home.is_relative_to(root) and home != root else []
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    unknown = _git(root, "ls-files", "--others", "--exclude-standard", "--", *_CODE, *own)
    if changed is None or unknown is None:
        return Commit(commit)
    return Commit(commit, not changed and not unknown)


def _git(root: Path, *arguments: str) -> str | None:
    environment = {name: value for name, value in os.environ.items() if name not in _GIT_VARIABLES}
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), *arguments],
            env={**environment, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
