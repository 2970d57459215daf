"""Partitions: which slices an asset has, what they are called and how they relate."""

from servo.partitions.calendars import Daily, Monthly, Weekly
from servo.partitions.clocks import Cron, Hourly
from servo.partitions.definitions import UNPARTITIONED, Dimension, Partitions
from servo.partitions.keys import EMPTY, PartitionKey, partition_id
from servo.partitions.listed import Dynamic, Static
from servo.partitions.sets import PartitionSet
from servo.partitions.windows import Window

__all__ = [
    "EMPTY",
    "UNPARTITIONED",
    "Cron",
    "Daily",
    "Dimension",
    "Dynamic",
    "Hourly",
    "Monthly",
    "PartitionKey",
    "PartitionSet",
    "Partitions",
    "Static",
    "Weekly",
    "Window",
    "partition_id",
]
