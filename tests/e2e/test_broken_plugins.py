"""Installed plugins that break their promises, from the start of an engine to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.calls import ReplicaFailed
from jackfield.stack.errors import PluginStop
from tests.e2e.engines import without_tokenizer
from tests.unit.stack.distributions import POLICY, Site, plugin_row

OBSERVER = """
from jackfield.hookspecs import hookimpl


class Sulky:
    @hookimpl
    def {hook}(self, {argument}):
        raise ValueError("the observer's own words")


@hookimpl
def jackfield_observer():
    return Sulky()
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return Site(tmp_path / "site")


def test_a_policy_that_cannot_start_refuses_the_start_by_its_name(site: Site) -> None:
    start = "    def start(self, waiting, running, view):\n        raise ValueError('no table')\n\n    def order"
    source = POLICY.replace("    def order", start)
    site.add("acme-no-start", plugin_row("schedule_policy", "no-start"), sources={"no_start": source})
    with pytest.raises(ConfigurationError, match=r"schedule_policy\.no-start failed.*no table"):
        without_tokenizer(schedule_policy="no-start")


@pytest.mark.parametrize(
    ("hook", "argument"),
    [
        ("jackfield_requests_received", "requests"),
        ("jackfield_requests_finished", "requests"),
        ("jackfield_batch_scheduled", "batch"),
    ],
)
def test_with_plugin_faults_raise_an_observers_error_ends_the_replica(site: Site, hook: str, argument: str) -> None:
    source = OBSERVER.format(hook=hook, argument=argument)
    row = plugin_row("observer", "sulky", processes=["main", "scheduler"])
    site.add("acme-sulky", row, sources={"sulky": source})
    with without_tokenizer(observer=["sulky"], plugin_faults="raise") as engine:
        with pytest.raises(PluginStop, match="the observer's own words"):
            engine.generate(input_ids=[3, 4], sampling_params={"max_new_tokens": 2})
        assert not engine._runtime.tokenizer_manager.rid_to_state
        with pytest.raises(ReplicaFailed, match="the observer's own words"):
            engine.flush_cache()
        assert "the observer's own words" in engine.get_server_info()["failure"]
