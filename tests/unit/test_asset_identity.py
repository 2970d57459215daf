"""One asset has one history: ids across renames, reverts, swaps and branches that come and go."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest

from servo.assets.spec import AssetSpec
from servo.errors import InvalidInput
from servo.events.definitions import AssetDefinition, Dependency
from servo.planning.history import NameUse, identify
from tests.support.catalogs import spec


def said(name: str, *, was: str | None = None, code: str | None = None) -> AssetSpec:
    """An asset of this name; unless another code is given, that of its name."""
    return spec(name, renamed_from=None if was is None else f"shop/{was}", code_version=code or name)


class Deployments:
    """What was deployed, one deployment after another."""

    def __init__(self) -> None:
        self.number = 0
        self.present: list[AssetDefinition] = []
        self.uses: list[NameUse] = []
        self.made: set[str] = set()  # ids of which there is data
        self._new = count(1)

    def __call__(self, *specs: AssetSpec) -> dict[str, str]:
        """Deploy these; their ids by name."""
        declared = {one.key: one for one in specs}
        known = identify(declared, self.present, self.uses, lambda asset_id: asset_id not in self.made)
        return self.record(declared, {key: known.get(key) or f"id{next(self._new)}" for key in declared})

    def record(self, declared: dict[str, AssetSpec], ids: dict[str, str]) -> dict[str, str]:
        assert len(set(ids.values())) == len(ids)
        self.number += 1
        self.present = [
            AssetDefinition(
                asset_id=ids[key], asset_key=key, code_version=one.code_version, renamed_from=one.renamed_from
            )
            for key, one in declared.items()
        ]
        for key, one in declared.items():
            use = NameUse(
                asset_id=ids[key], asset_key=key, code_version=one.code_version, first=self.number, last=self.number
            )
            same = [
                old
                for old in self.uses
                if (old.asset_id, old.asset_key, old.code_version) == (use.asset_id, key, one.code_version)
            ]
            if same:
                self.uses.remove(same[0])
                use = msgspec.structs.replace(use, first=same[0].first)
            self.uses.append(use)
        return {key.removeprefix("shop/"): asset_id for key, asset_id in ids.items()}


@pytest.fixture
def deploy() -> Deployments:
    return Deployments()


def test_a_rename_and_the_way_back(deploy: Deployments) -> None:
    assert deploy(said("a")) == {"a": "id1"}
    for _ in range(3):  # branches, back and forth
        assert deploy(said("b", was="a", code="a")) == {"b": "id1"}
        assert deploy(said("a")) == {"a": "id1"}
    # Back by another rename, and the obsolete word taken out.
    assert deploy(said("b", was="a", code="a")) == {"b": "id1"}
    assert deploy(said("b", code="a")) == {"b": "id1"}
    assert deploy(said("a", was="b")) == {"a": "id1"}
    assert deploy(said("a", code="edited")) == {"a": "id1"}


def test_a_chain_of_names(deploy: Deployments) -> None:
    deploy(said("a"))
    deploy(said("b", was="a"))
    assert deploy(said("c", was="b")) == {"c": "id1"}
    assert deploy(said("a")) == {"a": "id1"}
    assert deploy(said("c", was="b")) == {"c": "id1"}
    assert deploy(said("b", was="a")) == {"b": "id1"}
    assert deploy() == {}
    assert deploy(said("c", was="b")) == {"c": "id1"}


def test_names_move_on_in_one_deployment(deploy: Deployments) -> None:
    assert deploy(said("a"), said("b")) == {"a": "id1", "b": "id2"}
    assert deploy(said("b", was="a", code="a"), said("c", was="b", code="b")) == {"b": "id1", "c": "id2"}
    # What is said once is done once.
    assert deploy(said("b", was="a", code="a"), said("c", was="b", code="b2")) == {"b": "id1", "c": "id2"}
    assert deploy(said("a"), said("b")) == {"a": "id1", "b": "id2"}


def test_two_assets_swap_names_and_swap_back(deploy: Deployments) -> None:
    deploy(said("a"), said("b"))
    swapped = (said("a", was="b", code="b"), said("b", was="a", code="a"))
    for _ in range(2):
        assert deploy(*swapped) == {"a": "id2", "b": "id1"}
        assert deploy(*swapped, said("c")) == {"a": "id2", "b": "id1", "c": "id3"}
        assert deploy(said("a"), said("b")) == {"a": "id1", "b": "id2"}
    deploy(*swapped)
    # Only the obsolete words are taken out: the code is still where it was.
    assert deploy(said("a", code="b"), said("b", code="a")) == {"a": "id2", "b": "id1"}
    assert deploy(*swapped) == {"a": "id1", "b": "id2"}  # said anew


def test_the_old_name_is_free_for_another(deploy: Deployments) -> None:
    deploy(said("a"))
    with_another = (said("b", was="a", code="a"), said("a", code="other"))
    for _ in range(2):
        assert deploy(*with_another) == {"b": "id1", "a": "id2"}
        assert deploy(said("a")) == {"a": "id1"}  # the branch that knows nothing of it
    deploy(*with_another)
    # Later, and with an edit: it is the new one that is called so.
    assert deploy(said("b", code="a"), said("a", code="edited")) == {"b": "id1", "a": "id2"}
    assert deploy(said("a", code="edited")) == {"a": "id2"}
    assert deploy(said("b", was="a", code="a"), said("a", code="edited")) == {"b": "id1", "a": "id2"}


def test_what_was_removed_comes_back_and_what_is_there_keeps_its_own(deploy: Deployments) -> None:
    deploy(said("a"), said("b"))
    assert deploy(said("a")) == {"a": "id1"}
    assert deploy(said("a"), said("b", code="edited")) == {"a": "id1", "b": "id2"}
    # It has a history of its own: it does not take over another one because it is said later.
    assert deploy(said("b", was="a")) == {"b": "id2"}
    assert deploy(said("a")) == {"a": "id1"}
    assert deploy(said("z", was="b")) == {"z": "id2"}  # removed, and renamed when it comes back


def test_a_history_that_was_lost_by_a_revert_is_found_again(deploy: Deployments) -> None:
    a, b = said("a"), said("b", was="a", code="a")

    def as_it_was_done_once() -> None:
        deploy.record({a.key: a}, {a.key: "old"})
        deploy.record({b.key: b}, {b.key: "old"})
        deploy.record({a.key: a}, {a.key: "empty"})  # an earlier version of Servo did not know the way back
        deploy.record({b.key: b}, {b.key: "empty"})
        deploy.made.add("old")

    as_it_was_done_once()
    assert deploy(b) == {"b": "old"}
    assert deploy(a) == {"a": "old"}
    deploy.__init__()
    as_it_was_done_once()
    assert deploy(a) == {"a": "old"}
    deploy.__init__()
    as_it_was_done_once()
    deploy.made.add("empty")  # it has a history of its own by now
    assert deploy(b) == {"b": "empty"}


def test_an_id_is_never_empty() -> None:
    definition = AssetDefinition(asset_id="", asset_key="shop/a", code_version="1")
    with pytest.raises(InvalidInput, match="shop/a has no id"):
        definition.require_foldable()
    reads = AssetDefinition(
        asset_id="x", asset_key="shop/b", code_version="1", dependencies=[Dependency(asset_id="", asset_key="shop/a")]
    )
    with pytest.raises(InvalidInput, match="shop/a has no id"):
        reads.require_foldable()
