"""Cache events of a whole engine, heard by an installed observer: `CacheContext.events` is on exactly when one listens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jackfield import Engine
from tests.e2e.engines import without_tokenizer
from tests.unit.stack.distributions import Site, plugin_row

ROUTER = """
import json, os
from jackfield.hookspecs import hookimpl


class Router:
    @hookimpl
    def jackfield_cache_events(self, events):
        with open(os.environ["ACME_EVENTS"], "a") as file:
            for event in events:
                row = [event.action, event.namespace.hex(), event.tokens, event.length]
                file.write(json.dumps(row) + "\\n")


@hookimpl
def jackfield_observer():
    return Router()
"""

DEAF = """
from jackfield.hookspecs import hookimpl


class Deaf:
    @hookimpl
    def jackfield_requests_finished(self, requests):
        pass


@hookimpl
def jackfield_observer():
    return Deaf()
"""

GREEDY = {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True}


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the observer `router` writes; `deaf` listens to other hooks."""
    site = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(site.folder))
    site.add("acme-router", plugin_row("observer", "router", processes=["scheduler"]), sources={"router": ROUTER})
    site.add("acme-deaf", plugin_row("observer", "deaf", processes=["main", "scheduler"]), sources={"deaf": DEAF})
    file = tmp_path / "events.jsonl"
    file.touch()
    monkeypatch.setenv("ACME_EVENTS", str(file))
    return file


def rows(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def cache_tells(engine: Engine) -> bool:
    return engine._runtime.scheduler._memory._cache.told.events is not None  # type: ignore[union-attr]


@pytest.mark.parametrize("topology", ["inline", "processes"])
def test_stored_and_cleared_reach_an_installed_observer(heard: Path, topology: str) -> None:
    with without_tokenizer(observer=["router"], topology=topology) as engine:
        engine.generate(input_ids=[5, 6, 7, 8], sampling_params=GREEDY)
        engine.generate(input_ids=[5, 6, 9], sampling_params=GREEDY)
        engine.flush_cache()
        engine.generate(input_ids=[5, 6], sampling_params=GREEDY)
    told = rows(heard)
    namespace = told[0][1]
    assert told == [
        ["stored", namespace, [5, 6, 7, 8], 4],
        ["stored", namespace, [5, 6, 9], 1],
        ["cleared", "", [], 0],
        ["stored", namespace, [5, 6], 2],
    ]


def test_a_flush_is_told_before_the_engine_stands_still(heard: Path) -> None:
    """No step follows it, and none is needed."""
    with without_tokenizer(observer=["router"]) as engine:
        assert cache_tells(engine)
        engine.generate(input_ids=[5, 6, 7, 8], sampling_params=GREEDY)
        engine.flush_cache()
        engine.get_server_info()
        assert [row[0] for row in rows(heard)] == ["stored", "cleared"]


def test_evictions_reach_an_installed_observer(heard: Path) -> None:
    with without_tokenizer(observer=["router"], max_total_tokens=64, max_running_requests=2) as engine:
        for start in range(10, 100, 30):
            engine.generate(input_ids=list(range(start, start + 30)), sampling_params=GREEDY)
    actions = [row[0] for row in rows(heard)]
    assert actions.count("stored") == 3
    assert "removed" in actions


def test_the_cache_keeps_no_events_when_nobody_listens_to_them(heard: Path) -> None:
    with without_tokenizer(observer=["deaf"]) as engine:
        assert not cache_tells(engine)
        engine.generate(input_ids=[5, 6, 7, 8], sampling_params=GREEDY)
    assert rows(heard) == []
