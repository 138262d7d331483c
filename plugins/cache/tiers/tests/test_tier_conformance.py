"""The conformance suite on both tiers."""

from __future__ import annotations

import pytest

from jackfield.testing.conformance import KvTierConformance

pytestmark = pytest.mark.goal_row(35)


class TestHost(KvTierConformance):
    plugin = "host"
    options = {"size_mib": 1}  # noqa: RUF012


class TestDisk(KvTierConformance):
    plugin = "disk"
    options = {"path": "{tmp}/blocks", "size_mib": 1}  # noqa: RUF012
