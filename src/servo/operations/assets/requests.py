"""What can be asked of assets."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from servo.answers.assets import AssetDetails, AssetView, CodeAccepted
from servo.answers.partitions import AssetWhy, PartitionWhy
from servo.operations.fields import LONGEST_TEXT, AssetName, Text
from servo.operations.operation import CONFLICT, NOT_FOUND, UNFIT, Change, ListQuestion, Question


class ListAssets(ListQuestion[AssetView], route="GET /assets", client="assets.list"):
    """List assets by their keys, as they are deployed."""


class GetAsset(Question[AssetDetails], route="GET /assets/{asset}", client="assets.get", refusals=(NOT_FOUND, UNFIT)):
    """Show all that is declared about an asset."""

    asset: AssetName


class Explain(Question[PartitionWhy | AssetWhy], route="GET /assets/{asset}/why", refusals=(NOT_FOUND, UNFIT)):
    """Explain an asset, or with `partition` one of its partitions."""

    asset: AssetName
    partition: (
        Annotated[
            str, Meta(description="Of this partition; of the asset as a whole, if left out.", max_length=LONGEST_TEXT)
        ]
        | None
    ) = None


class AcceptCode(
    Change[CodeAccepted],
    route="POST /assets/accept-code",
    client="assets.accept_code",
    positional=("asset", "versions"),
    key="required",
    deploys="always",
    example={"asset": "orders", "reason": "moved helpers into a module"},
    refusals=(NOT_FOUND, CONFLICT, UNFIT),
):
    """Declare that an asset's code, as deployed, makes what it made before: a refactoring. Nothing is computed."""

    asset: Text
    reason: Text
    versions: Annotated[
        tuple[Text, ...],
        Meta(
            description="Versions that it is equal to; else the newest that partitions were made with.", max_length=100
        ),
    ] = ()
