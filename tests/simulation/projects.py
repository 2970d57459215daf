"""Random small projects: graphs of assets with partitions and mappings of many kinds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

from servo.assets.spec import Approval, AssetSpec, Retry
from servo.partitions import Daily, Monthly, Partitions, PartitionSet, Static
from servo.partitions.mappings import All, Last, Lookback, Mapping, Offset
from servo.planning.catalog import Catalog
from tests.support.catalogs import catalog, spec

BEGIN = datetime(2025, 2, 20, 12, tzinfo=UTC)

DAYS = Daily("date", start="2025-01-30", end="2025-02-03")
REGIONS = Static("region", ["eu", "us"])
MONTHS = Monthly("month", start="2025-01", end="2025-02")
KINDS = [None, DAYS, DAYS, DAYS * REGIONS, REGIONS, MONTHS]
POOLS = {"jdbc": 1}


def random_catalog(random: Random) -> Catalog:
    """Two to six assets, each of which reads some of those before it."""
    specs: list[AssetSpec] = []
    for number in range(random.randint(2, 6)):
        partitions = random.choice(KINDS)
        upstream = random.sample(specs, k=min(len(specs), random.choice([0, 1, 1, 2])))
        specs.append(
            spec(
                f"a{number}",
                partitions,
                {one.name: _mapping(random, one.partitions, Partitions.of(partitions)) for one in upstream},
                batch=random.random() < 0.4,
                retry=Retry(attempts=random.randint(1, 3), delay=timedelta(seconds=random.choice([0, 5, 30]))),
                approval=_approval(random) if random.random() < 0.3 else None,
                tags={"pool": "jdbc"} if random.random() < 0.3 else {},
            )
        )
    return catalog(*specs)


def _approval(random: Random) -> Approval:
    """Some wait for ever; others have seconds, and then end or are handed on."""
    deadline = random.choice([None, timedelta(seconds=2), timedelta(seconds=20)])
    return Approval("finance", deadline=deadline, on_deadline=random.choice(["expire", "escalate"]))


def _mapping(random: Random, upstream: Partitions, downstream: Partitions) -> Mapping | None:
    """The default one mostly; others where they fit."""
    special: list[Mapping] = [All()]
    if any(dimension.timed for dimension in upstream.dimensions):
        special.append(Last())
    if upstream == downstream == Partitions.of(DAYS):
        special += [Lookback(2), Offset(-1)]
    return random.choice(special) if random.random() < 0.35 else None


def random_targets(random: Random, known: Catalog, now: datetime) -> dict[str, PartitionSet]:
    """Some or all partitions of an asset or two, without what they read."""
    assets = list(known.graph.specs)
    targets = {}
    for key in random.sample(assets, k=random.choice([1, 1, 1, 2])):
        everything = known.spec(key).partitions.everything(now)
        targets[key] = everything if random.random() < 0.5 else _some(random, everything)
    return targets


def _some(random: Random, everything: PartitionSet) -> PartitionSet:
    low = random.randrange(everything.count)
    return everything.slice(low, random.randint(low + 1, everything.count))


def random_wanted(random: Random, known: Catalog, now: datetime) -> dict[str, PartitionSet]:
    """Some partitions of some assets, mostly with all that they read."""
    assets = list(known.graph.specs)
    wanted = {}
    for key in random.sample(assets, k=random.randint(1, len(assets))):
        wanted[key] = _some(random, known.spec(key).partitions.everything(now))
    if random.random() < 0.8:
        for key in reversed(assets):
            for upstream in known.graph.upstream(key) if key in wanted else ():
                read = known.graph.mapping(upstream, key).upstream(wanted[key], known.spec(upstream).partitions, now)
                if read:
                    wanted[upstream] = wanted[upstream] | read if upstream in wanted else read
    return wanted
