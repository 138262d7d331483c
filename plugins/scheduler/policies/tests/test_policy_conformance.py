"""The conformance suite on every policy of this package."""

from __future__ import annotations

import pytest

from jackfield.testing.conformance import SchedulePolicyConformance

pytestmark = pytest.mark.goal_row(35)


class TestDepthFirstByWeight(SchedulePolicyConformance):
    plugin = "dfs-weight"


class TestEarliestDeadlineFirst(SchedulePolicyConformance):
    plugin = "edf"
    options = {"late": "last"}  # noqa: RUF012


class TestFairShare(SchedulePolicyConformance):
    plugin = "fair-share"


class TestFirstComeFirstServed(SchedulePolicyConformance):
    plugin = "fcfs"


class TestHighestResponseRatioNext(SchedulePolicyConformance):
    plugin = "hrrn"


class TestLongestOutputFirst(SchedulePolicyConformance):
    plugin = "lof"


class TestLongestPrefixMatch(SchedulePolicyConformance):
    plugin = "lpm"


class TestPriorityFirst(SchedulePolicyConformance):
    plugin = "priority"
    options = {"ageing": 0.5}  # noqa: RUF012


class TestRandomOrder(SchedulePolicyConformance):
    plugin = "random"


class TestShortestPrefillFirst(SchedulePolicyConformance):
    plugin = "shortest-prefill-first"


class TestTokenBudget(SchedulePolicyConformance):
    plugin = "token-budget"
