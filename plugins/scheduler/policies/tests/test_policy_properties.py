"""What holds of the policies of this package beyond the conformance suite."""

from __future__ import annotations

import importlib
import tomllib
from importlib.metadata import distribution, entry_points
from importlib.resources import files
from typing import Any

import pytest

from jackfield.hookspecs import DecodeTurn, PolicyContext, SchedulePolicy
from jackfield.testing.conformance.policy_tables import MadeTable, made_view

MANIFEST = {
    row["name"]: row
    for row in tomllib.loads(files("jackfield_scheduler_policies").joinpath("plugin.toml").read_text())["plugin"]
}
NAMES = sorted(MANIFEST)
WITH_OPTIONS = [name for name in NAMES if "options" in MANIFEST[name]]
POLICIES = pytest.mark.parametrize("name", NAMES)


def make(name: str, **options: Any) -> SchedulePolicy:
    """As the core makes it."""
    (point,) = entry_points(group="jackfield.schedule_policy", name=name)
    model = None
    if "options" in MANIFEST[name]:
        module, _, attribute = MANIFEST[name]["options"].partition(":")
        model = getattr(importlib.import_module(module), attribute)(**options)
    context = PolicyContext(
        kind="schedule_policy",
        name=name,
        instance=name,
        options=model,
        max_running=4,
        page_size=1,
        total_slots=64,
    )
    made = point.load().jackfield_schedule_policy(context=context)
    assert isinstance(made, SchedulePolicy)
    return made


def test_manifest_and_entry_points_name_the_same_policies() -> None:
    installed = [
        point.name
        for point in distribution("jackfield-scheduler-policies").entry_points
        if point.group == "jackfield.schedule_policy"
    ]
    assert sorted(installed) == NAMES


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_options_of_another_policy_are_refused(name: str) -> None:
    (point,) = entry_points(group="jackfield.schedule_policy", name=name)
    context = PolicyContext(
        kind="schedule_policy", name=name, instance="mine", options=object(), max_running=4, page_size=1, total_slots=64
    )
    with pytest.raises(TypeError, match=r"mine wants \w+Options, got object"):
        point.load().jackfield_schedule_policy(context=context)


@POLICIES
def test_nobody_is_left_out(name: str) -> None:
    order = make(name).order(MadeTable(50, 1), made_view(50, 1, forest=True))
    assert order is None or sorted(order.tolist()) == list(range(50))


def test_mixing_policies_are_the_ones_that_say_so() -> None:
    mixing = [name for name in NAMES if make(name).budget(made_view(0, 0)).decode is DecodeTurn.MIX]
    assert mixing == ["token-budget"]
