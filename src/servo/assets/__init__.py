"""Assets: what a project declares, the graph of it, and how people select from it."""

from servo.assets.decorator import Asset, Dep, asset
from servo.assets.graph import Graph
from servo.assets.spec import Approval, AssetSpec, Dependency, Retry, Source

__all__ = ["Approval", "Asset", "AssetSpec", "Dep", "Dependency", "Graph", "Retry", "Source", "asset"]
