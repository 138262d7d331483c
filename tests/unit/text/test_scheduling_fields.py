"""Priority, tenant and deadline on their way in: what is taken, what is refused, and that a refusal names the field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jackfield.managers.errors import RequestError
from jackfield.managers.fields.limits import DEFAULT_LIMITS
from jackfield.managers.fields.scheduling import SchedulingFields, scheduling_fields


def test_what_is_not_given_is_neutral() -> None:
    assert scheduling_fields(None, None, None, 2) == [SchedulingFields()] * 2
    assert SchedulingFields() == SchedulingFields(priority=0, tenant=None, deadline=None)
    assert scheduling_fields(None, None, None, 0) == []


def test_one_for_all_or_one_for_each() -> None:
    assert scheduling_fields([3, None], "acme", (None, 0.5), 2) == [
        SchedulingFields(priority=3, tenant="acme"),
        SchedulingFields(tenant="acme", deadline=0.5),
    ]


@pytest.mark.parametrize("value", [-(2**31), 2**31 - 1, 0, np.int64(7)])
def test_priorities_that_are_taken(value: Any) -> None:
    (fields,) = scheduling_fields(value, None, None, 1)
    assert type(fields.priority) is int
    assert fields.priority == value


@pytest.mark.parametrize("value", [1, 0.001, 1e300, np.float32(2.5)])
def test_deadlines_that_are_taken(value: Any) -> None:
    (fields,) = scheduling_fields(None, None, value, 1)
    assert type(fields.deadline) is float
    assert fields.deadline == value


@pytest.mark.parametrize("value", ["a", "Straße 7", "x" * DEFAULT_LIMITS.max_tenant_length])
def test_tenants_that_are_taken(value: str) -> None:
    assert scheduling_fields(None, value, None, 1)[0].tenant == value


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("priority", 2**31, "whole number from -2147483648 to 2147483647, not 2147483648"),
        ("priority", -(2**31) - 1, "whole number"),
        ("priority", True, "not True"),
        ("priority", 1.0, "not 1.0"),
        ("priority", "high", "not 'high'"),
        ("priority", {"a": 1}, "whole number"),
        ("priority", [1, 2], "2 entries for 1 prompts"),
        ("priority", [[1]], "whole number"),
        ("tenant", "", "1 to 256 characters, not 0"),
        ("tenant", "x" * 257, "1 to 256 characters, not 257"),
        ("tenant", 7, "a text, not 7"),
        ("tenant", b"acme", "a text"),
        ("tenant", "a\ud800", "valid Unicode"),
        ("deadline_s", 0, "above 0, not 0"),
        ("deadline_s", -1.5, "above 0"),
        ("deadline_s", float("nan"), "above 0"),
        ("deadline_s", float("inf"), "above 0"),
        ("deadline_s", 10**400, "above 0"),
        ("deadline_s", False, "above 0"),
        ("deadline_s", "soon", "above 0"),
        ("deadline_s", [], "0 entries for 1 prompts"),
    ],
)
def test_refusals(name: str, value: Any, why: str) -> None:
    given = {"priority": None, "tenant": None, "deadline_s": None, name: value}
    with pytest.raises(RequestError, match=why) as caught:
        scheduling_fields(**given, count=1)
    assert caught.value.param == name
    assert caught.value.status_code == 400
    assert len(str(caught.value)) < 300
