"""Crons that have a name are kept by their five fields, whoever gives them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import servo
from servo.assets.spec import Source
from servo.errors import InvalidInput
from servo.operations.automations.definitions import created_schedule, edited_schedule
from servo.operations.automations.requests import CreateSchedule, UpdateSchedule
from servo.partitions.cron import in_fields, parsed_cron

NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    " @Daily ": "0 0 * * *",
}


@pytest.mark.parametrize(("name", "fields"), NAMED.items())
def test_a_name_stands_for_its_fields(name: str, fields: str) -> None:
    assert in_fields(name) == fields
    parsed_cron(fields)
    declared = servo.Schedule("named", cron=name, select="orders", source=Source("definitions.py", 1))
    assert declared.cron == fields
    made = created_schedule(CreateSchedule(name="named", cron=name, select=("orders",)), "01JHMN00000000000000000000")
    assert made.cron == fields
    now = datetime(2025, 1, 1, tzinfo=UTC)
    _, changed = edited_schedule(made, UpdateSchedule(schedule="named", cron=name), version=2, now=now)
    assert changed == ()


@pytest.mark.parametrize("name", ["@reboot", "@fortnightly", "daily", ""])
def test_what_is_none_is_told_which_there_are(name: str) -> None:
    assert in_fields(name) == name
    with pytest.raises(InvalidInput) as refused:
        parsed_cron(name)
    assert "@daily" in str(refused.value.hint)
