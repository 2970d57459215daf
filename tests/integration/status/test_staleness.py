"""Staleness case by case: which partitions, since when, why, and what at the bottom of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Barrier, Thread

import msgspec
import pytest

from servo.errors import AssetNotFound
from servo.events.model import RunCancelRequested
from servo.partitions import Daily, Dynamic, Monthly, Static
from servo.partitions.mappings import All, Identity, Last, Lookback, Mapping
from servo.projections.manifest import decode
from servo.runtime.states import state_of
from servo.status.staleness import StalePartition, _KeptSets, stale_counts, stale_sets
from servo.status.staleness_query import StalenessQuery
from tests.support.catalogs import catalog, spec
from tests.support.stale_questions import StaleQuestions
from tests.support.stale_world import Hands

HOUR = timedelta(hours=1)
_hold = _KeptSets.hold
DAYS = [f"date=d:{date(2025, 1, 1) + timedelta(days=n)}" for n in range(60)]
JANUARY, FEBRUARY = "month=d:2025-01-01", "month=d:2025-02-01"


@pytest.fixture
def hands(tmp_path: Path) -> Iterator[Hands]:
    hands = Hands(tmp_path)
    yield hands
    hands.project.close()


def _stale(hands: Hands, **how: object) -> dict[tuple[str, str], StalePartition]:
    found = StaleQuestions(hands.project).find(**how)  # type: ignore[arg-type]
    return {(row.asset_key.removeprefix("shop/"), row.partition_key): row for row in found}


def _months(hands: Hands) -> None:
    """Days, months of days, and one number of all months; all computed in March."""
    hands.pass_time(timedelta(days=60))
    hands.deploy(
        spec("days", Daily("date", start="2025-01-01")),
        spec("months", Monthly("month", start="2025-01-01"), ["days"]),
        spec("total", None, ["months"]),
    )
    hands.run("shop/days", DAYS, [f"h{n}" for n in range(60)])
    hands.run("shop/months", [JANUARY, FEBRUARY], ["jan", "feb"])
    hands.run("shop/total", [""], ["t"])


def test_equal_content_makes_nothing_stale_and_other_content_exactly_what_reads_it(hands: Hands) -> None:
    _months(hands)
    assert _stale(hands, transitive=True) == {}
    hands.run("shop/days", [DAYS[9]], ["h9"])
    assert _stale(hands, transitive=True) == {}, "the content is the same"
    hands.run("shop/days", [DAYS[9]], ["other"])
    changed_at = hands.now
    assert [*_stale(hands)] == [("months", JANUARY)]
    found = _stale(hands, transitive=True)
    assert [*found] == [("months", JANUARY), ("total", "")]
    month, total = found.values()
    assert (month.reason_code, month.stale_since, month.root_asset_key) == ("UPSTREAM_CHANGED", changed_at, None)
    assert (total.reason_code, total.stale_since) == ("UPSTREAM_STALE", changed_at)
    root = (total.root_asset_key, total.root_partition_key, total.root_reason_code)
    assert root == ("shop/months", JANUARY, "UPSTREAM_CHANGED")
    hands.run("shop/days", [DAYS[9]], ["h9"])
    assert _stale(hands, transitive=True) == {}, "the content is what was read again"
    hands.run("shop/days", [DAYS[9]], ["third"])
    assert _stale(hands)["months", JANUARY].stale_since == hands.now, "not since the stretch that is over"


def test_only_what_depends_on_the_rebuilt_with_other_content_follows(hands: Hands) -> None:
    """Early cut-off: the month is computed again and comes out the same, so the total stays fresh."""
    _months(hands)
    hands.run("shop/days", [DAYS[9]], ["other"])
    hands.run("shop/months", [JANUARY], ["jan"])
    assert _stale(hands, transitive=True) == {}


def test_a_month_is_stale_when_another_of_its_days_arrives(hands: Hands) -> None:
    hands.pass_time(timedelta(days=30))
    hands.deploy(
        spec("days", Daily("date", start="2025-01-01")),
        spec("months", Monthly("month", start="2025-01-01"), ["days"]),
    )
    hands.run("shop/days", DAYS[:31], ["h"] * 31)
    hands.run("shop/days", [DAYS[31]], ["h"])
    hands.run("shop/months", [JANUARY, FEBRUARY], ["jan", "feb"])
    built = hands.now
    hands.pass_time(HOUR)
    hands.run("shop/days", [DAYS[32]], ["h"])
    arrived = hands.now
    row = _stale(hands)["months", FEBRUARY]
    assert (row.reason_code, row.stale_since) == ("UPSTREAM_CHANGED", arrived)
    assert [*_stale(hands)] == [("months", FEBRUARY)]
    assert _stale(hands, as_of=built) == {}
    states = {one.partition_key: one for one in StaleQuestions(hands.project).inputs("shop/months", FEBRUARY)}
    assert (states[DAYS[31]].state, states[DAYS[32]].state, states[DAYS[33]].state) == ("same", "unread", "missing")
    assert states[DAYS[32]].changed_at == arrived


def test_the_last_window_takes_over_when_it_has_ended(hands: Hands) -> None:
    """What was read and is no longer given does not count any more; what is given counts from its end on."""
    hands.deploy(spec("days", Daily("date", start="2025-01-01")), spec("newest", None, {"days": Last()}))
    hands.run("shop/days", [DAYS[27], DAYS[28]], ["a", "b"])  # the 29th is not over yet
    hands.run("shop/newest", [""], ["n"])
    assert _stale(hands) == {}
    hands.run("shop/days", [DAYS[27]], ["changed"])
    assert [*_stale(hands)] == [("newest", "")]
    hands.run("shop/newest", [""], ["n"])
    staleness = StaleQuestions(hands.project)
    staleness.sweep()
    assert staleness.counts() == {}
    hands.pass_time(timedelta(days=1))
    midnight = datetime(2025, 1, 30, tzinfo=UTC)
    assert staleness.counts() == {"shop/newest": 1}, "nothing has happened since the sweep but that time has passed"
    assert _stale(hands)["newest", ""].reasons == (("UPSTREAM_CHANGED", midnight),)


def test_code_is_changed_since_the_last_time_that_it_was(hands: Hands) -> None:
    moments = []
    for code in ("v1", "v2", "v1", "v3"):
        hands.deploy(spec("a", Static("region", ["eu", "us"]), code_version=code))
        moments.append(hands.now)
        if code == "v1" and len(moments) == 1:
            hands.run("shop/a", ["region=s:ZXU"], ["h"])
        hands.pass_time(HOUR)
    row = _stale(hands)["a", "region=s:ZXU"]
    assert row.reasons == (("CODE_CHANGED", moments[3]),)
    assert _stale(hands, as_of=moments[1])["a", "region=s:ZXU"].stale_since == moments[1]
    assert _stale(hands, as_of=moments[2]) == {}


def test_a_partition_is_not_stale_before_it_is_current(hands: Hands) -> None:
    hands.deploy(spec("a"), spec("b", None, ["a"], freshness=timedelta(days=1)))
    hands.run("shop/a", [""], ["one"])
    hands.run("shop/b", [""], ["b1"])
    hands.pass_time(2 * HOUR)
    hands.run("shop/a", [""], ["two"])
    hands.run("shop/b", [""], ["b2"])
    assert _stale(hands) == {}
    hands.pass_time(30 * HOUR)
    hands.roll_back("shop/b", "", 0)
    back = hands.now
    row = _stale(hands)["b", ""]
    assert row.reasons == (("UPSTREAM_CHANGED", back), ("FRESHNESS_POLICY", back))


def test_invalidated_frozen_and_made_by_hand(hands: Hands) -> None:
    regions = {name: f"region=s:{text}" for name, text in (("eu", "ZXU"), ("us", "dXM"))}
    hands.deploy(spec("a", Static("region", ["eu", "us"])), spec("b", Static("region", ["eu", "us"]), ["a"]))
    hands.run("shop/a", list(regions.values()), ["h", "h"])
    hands.mark("shop/b", list(regions.values()), "MATERIALIZED")
    assert _stale(hands) == {}, "who makes something by hand is taken to have read what was there"
    hands.invalidate("shop/b", [regions["eu"]])
    hands.invalidate("shop/a", [regions["us"]])
    assert {place: row.reason_code for place, row in _stale(hands).items()} == {
        ("a", regions["us"]): "INVALIDATED",
        ("b", regions["eu"]): "INVALIDATED",
    }
    hands.mark("shop/b", [regions["eu"]], "FROZEN")
    assert [*_stale(hands)] == [("a", regions["us"])]
    hands.mark("shop/b", [regions["eu"]], "THAWED")
    assert len(_stale(hands)) == 2


def test_a_mark_makes_nobody_stale_and_is_never_stale_itself(hands: Hands) -> None:
    regions = {name: f"region=s:{text}" for name, text in (("eu", "ZXU"), ("us", "dXM"))}
    both = Static("region", ["eu", "us"])
    hands.deploy(spec("a", both), spec("b", both, ["a"]), spec("c", None, {"a": All()}))
    hands.run("shop/a", [regions["eu"]], ["h"])
    hands.run("shop/c", [""], ["t"])
    hands.mark("shop/a", [regions["us"]], "MATERIALIZED", content=None)
    hands.mark("shop/b", list(regions.values()), "MATERIALIZED", content=None)
    assert _stale(hands, transitive=True) == {}
    states = {one.partition_key: one.state for one in StaleQuestions(hands.project).inputs("shop/c", "")}
    assert states == {regions["eu"]: "same", regions["us"]: "marked"}
    hands.deploy(spec("a", both), spec("b", both, ["a"], freshness=HOUR), spec("c", None, {"a": All()}))
    hands.invalidate("shop/b", [regions["eu"]])
    hands.run("shop/a", [regions["eu"]], ["h"])
    hands.pass_time(2 * HOUR)
    assert _stale(hands, transitive=True) == {}, "what holds no data cannot be out of date"
    hands.run("shop/a", [regions["us"]], ["other"])
    row = _stale(hands)["c", ""]
    assert row.reasons == (("UPSTREAM_CHANGED", hands.now),), "since there is data, and not since the mark"


def test_ten_thousand_inputs_are_told_apart(hands: Hands) -> None:
    keys = [f"date=d:{date(1990, 1, 1) + timedelta(days=n)}" for n in range(10_001)]
    hands.deploy(spec("days", Daily("date", start="1990-01-01")), spec("all", None, {"days": All()}))
    hands.run("shop/days", keys[:10_000], [f"h{n}" for n in range(10_000)])
    hands.run("shop/all", [""], ["t"])
    staleness = StaleQuestions(hands.project)
    assert staleness.counts() == {}
    hands.run("shop/days", [keys[5_000]], ["h5000"])
    assert staleness.counts() == {}
    hands.run("shop/days", [keys[9_999]], ["other"])
    assert staleness.counts() == {"shop/all": 1}
    hands.run("shop/days", [keys[9_999]], ["h9999"])
    assert staleness.counts() == {}
    hands.run("shop/days", [keys[10_000]], ["new"])
    assert staleness.counts() == {"shop/all": 1}
    assert _stale(hands)["all", ""].stale_since == hands.now
    changed = [one for one in staleness.inputs("shop/all", "") if one.changed_at is not None]
    assert [(one.partition_key, one.state) for one in changed] == [(keys[10_000], "unread")]


def test_values_that_are_taken_away_are_nobodys_input(hands: Hands) -> None:
    """Definitions of the day: what they do not have is neither stale nor read."""
    hands.deploy(spec("a", Static("region", ["eu", "us"])), spec("b", Static("region", ["eu", "us"]), ["a"]))
    keys = ["region=s:ZXU", "region=s:dXM"]
    hands.run("shop/a", keys, ["h", "h"])
    hands.run("shop/b", keys, ["h", "h"])
    hands.run("shop/a", keys, ["other", "other"])
    before = hands.now
    hands.deploy(spec("a", Static("region", ["eu"])), spec("b", Static("region", ["eu"]), ["a"]))
    assert [*_stale(hands)] == [("b", keys[0])]
    assert [*_stale(hands, as_of=before)] == [("b", keys[0]), ("b", keys[1])]
    assert {key: found.count for key, found in StaleQuestions(hands.project).sets().items()} == {"shop/b": 1}


def test_a_removed_value_makes_those_who_read_it_stale_until_it_comes_back(hands: Hands) -> None:
    """The total over all customers would come out without the removed one."""
    customers = Dynamic("customer")
    hands.deploy(spec("a", customers), spec("total", None, {"a": All()}), spec("each", customers, ["a"]))
    hands.change("customer", added=["acme", "bolt"])
    keys = ["customer=s:YWNtZQ", "customer=s:Ym9sdA"]
    hands.run("shop/a", keys, ["h1", "h2"])
    hands.run("shop/total", [""], ["t"])
    hands.run("shop/each", keys, ["e1", "e2"])
    assert _stale(hands) == {}
    hands.change("customer", removed=["acme"])
    removed_at = hands.now
    found = _stale(hands)
    assert {place: (one.reason_code, one.stale_since) for place, one in found.items()} == {
        ("total", ""): ("UPSTREAM_CHANGED", removed_at)
    }
    (gone, kept) = StaleQuestions(hands.project).inputs("shop/total", "")
    assert (gone.partition_key, gone.state, gone.changed_at) == (keys[0], "removed", removed_at)
    assert (kept.partition_key, kept.state) == (keys[1], "same")
    # Few partitions, a sweep and the past say the same.
    only = {"shop/total": [""]}
    assert StaleQuestions(hands.project).find(["shop/total"], only=only) == [found["total", ""]]
    StaleQuestions(hands.project).sweep()
    assert _stale(hands) == found
    # It comes back as it was: nothing would come out differently.
    hands.change("customer", added=["acme"])
    assert _stale(hands) == {}
    assert [*_stale(hands, as_of=removed_at)] == [("total", "")]
    # Computed without it, it lacks it when it comes back, also with the same content.
    hands.change("customer", removed=["acme"])
    hands.run("shop/total", [""], ["t2"])
    assert _stale(hands) == {}
    hands.change("customer", added=["acme"])
    assert [*_stale(hands)] == [("total", "")]
    assert [(one.partition_key, one.state) for one in StaleQuestions(hands.project).inputs("shop/total", "")] == [
        (keys[0], "unread"), (keys[1], "same"),
    ]  # fmt: skip


def test_a_removed_static_value_and_another_mapping_make_readers_stale_since_they_were_deployed(hands: Hands) -> None:
    days = Daily("date", start="2025-01-28", end="2025-02-04")
    regions = {two: Static("region", ["eu", "us"] if two else ["us"]) for two in (True, False)}

    def deploy(mapping: Mapping | None, *, both: bool, freshness: timedelta | None = None) -> datetime:
        hands.deploy(
            spec("a", regions[both]), spec("total", None, {"a": All()}),
            spec("d", days, freshness=freshness), spec("e", days, {"d": mapping}),
        )  # fmt: skip
        return hands.now

    deploy(Lookback(2), both=True)
    hands.run("shop/a", ["region=s:ZXU", "region=s:dXM"], ["h1", "h2"])
    hands.run("shop/total", [""], ["t"])
    hands.run("shop/d", ["date=d:2025-01-28"], ["x"])
    hands.run("shop/e", ["date=d:2025-01-29"], ["y"])
    assert _stale(hands) == {}
    first = deploy(Lookback(2), both=False)
    second = deploy(Identity(), both=False)
    hands.pass_time(HOUR)
    deploy(None, both=False, freshness=10 * HOUR)
    stale = [(place, one.stale_since) for place, one in _stale(hands).items() if one.reason_code == "UPSTREAM_CHANGED"]
    assert stale == [(("e", "date=d:2025-01-29"), second), (("total", ""), first)]


def test_an_asset_that_is_not_there_is_named(hands: Hands) -> None:
    hands.deploy(spec("a", Dynamic("customer")))
    with pytest.raises(AssetNotFound, match="shop/b"):
        StaleQuestions(hands.project).find(["shop/b"])


# ── what is on disk ──────────────────────────────────────────────────────────────────────────────────────────────


def test_projections_of_an_older_fold_are_made_anew(hands: Hands) -> None:
    """A version that was made before a table was there must not pass for one in which nothing happened."""
    hands.deploy(spec("a"))
    hands.run("shop/a", [""], ["h"])
    hands.deploy(spec("a", code_version="2"))
    hands.compact()
    store = hands.project.store
    (path,) = sorted((store.root / "manifests").glob("*.json"))[-1:]
    old = decode(path.read_bytes(), path.name)
    tables = {name: files for name, files in old.tables.items() if name not in ("asset_versions", "rollbacks")}
    store.publish(msgspec.structs.replace(old, version=old.version + 1, tables=tables, fold=1))
    (path,) = sorted((store.root / "manifests").glob("*.json"))[-1:]
    assert b'"fold": 1' in path.read_bytes() or b"fold" not in path.read_bytes()
    older = {name: value for name, value in msgspec.to_builtins(old).items() if name != "fold"}
    assert decode(msgspec.json.encode(older), "older").fold == 1
    assert [row.reason_code for row in _stale(hands).values()] == ["CODE_CHANGED"]
    hands.compact()
    assert store.current().is_complete
    assert store.current().watermark == old.watermark
    assert "asset_versions" in store.current().tables
    assert [row.reason_code for row in _stale(hands).values()] == ["CODE_CHANGED"]


@pytest.mark.parametrize("damage", ["pointer", "rows", "gone"])
def test_a_sweep_that_is_damaged_is_done_without(hands: Hands, damage: str) -> None:
    _months(hands)
    staleness = StaleQuestions(hands.project)
    staleness.sweep()
    hands.run("shop/days", [DAYS[9]], ["other"])
    folder = hands.project.store.root / "staleness"
    (rows,) = folder.glob("*.parquet")
    match damage:
        case "pointer":
            (folder / "CURRENT").write_bytes(b"{}")
        case "rows":
            rows.write_bytes(rows.read_bytes()[:-9])
        case _:
            rows.unlink()
    assert StaleQuestions(hands.project).counts() == {"shop/months": 1}
    assert staleness.counts() == {"shop/months": 1}
    staleness.sweep()
    assert StaleQuestions(hands.project).counts() == {"shop/months": 1}


def test_what_reads_what_is_not_there_yet_is_judged_by_itself(hands: Hands) -> None:
    days = Daily("date", start="2025-01-01")
    hands.deploy(spec("up", days), spec("down", None, {"up": All()}, freshness=HOUR))
    hands.run("shop/down", [""], ["a"])
    hands.pass_time(2 * HOUR)
    assert [*_stale(hands, transitive=True)] == [("down", "")]
    assert StaleQuestions(hands.project).find(["shop/down"], transitive=True, only={"shop/down": [""]})


def test_kept_sets_hold_until_data_definitions_or_time_change_them(
    hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = Daily("date", start="2025-01-01")
    queries: list[StalenessQuery] = []
    judge = StalenessQuery.answer

    def counted(query: StalenessQuery, *, transitive: bool) -> None:
        queries.append(query)
        judge(query, transitive=transitive)

    monkeypatch.setattr(StalenessQuery, "answer", counted)

    def stale(asset: str = "shop/down") -> tuple[int, bool]:
        """How many are stale, and whether that was worked out anew."""
        before = len(queries)
        found = stale_sets(state_of(hands.project), [asset])
        return found[asset].count if found else 0, len(queries) > before

    monkeypatch.setattr(_KeptSets, "hold", _hold)  # without the comparison that judges anew
    hands.deploy(spec("up", days), spec("down", days, ["up"], freshness=10 * HOUR))
    hands.run("shop/up", DAYS[:3], ["a", "b", "c"])
    hands.run("shop/down", DAYS[:3], ["x", "y", "z"])
    hands.run("shop/down", [DAYS[2]], ["z"])
    assert stale() == (0, True)
    hands.record(RunCancelRequested(run_id="run_" + "a" * 26))
    assert stale() == (0, False), "what is said of runs changes nothing"
    hands.pass_time(9 * HOUR)
    assert stale() == (0, False)
    hands.run("shop/up", [DAYS[0]], ["other"])
    assert stale() == (1, True)
    hands.pass_time(HOUR - timedelta(minutes=1))
    assert stale() == (1, False), "nobody is late yet"
    hands.pass_time(timedelta(minutes=1))
    assert stale() == (3, True), "all are late"
    hands.deploy(spec("up", days), spec("down", days, ["up"]))
    assert stale() == (1, True), "without a policy"


def test_a_sweep_says_nothing_of_code_that_is_not_deployed(hands: Hands) -> None:
    hands.deploy(spec("a"))
    hands.run("shop/a", [""], ["x"])
    staleness = StaleQuestions(hands.project)
    staleness.sweep()
    state = state_of(hands.project)
    edited = catalog(spec("a", code_version="2"))
    edited = msgspec.structs.replace(edited, asset_ids=state.catalog.asset_ids)
    found = stale_counts(state.judged_by(edited))
    assert found == {"shop/a": 1}
    assert staleness.counts() == {}


def test_two_sweeps_at_once_leave_one_that_can_be_read(hands: Hands) -> None:
    _months(hands)
    barrier, problems = Barrier(4), []

    def sweep() -> None:
        barrier.wait()
        try:
            for _ in range(5):
                StaleQuestions(hands.project).sweep()
        except Exception as problem:  # noqa: BLE001 (whatever it is, it is one too many)
            problems.append(problem)

    threads = [Thread(target=sweep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    [folder] = {path.parent for path in hands.project.store.root.glob("staleness/*.parquet")}
    assert (folder / decode_pointer(folder)).exists()


def decode_pointer(folder: Path) -> str:
    return str(msgspec.json.decode((folder / "CURRENT").read_bytes())["file"]["name"])
