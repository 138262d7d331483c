"""Wheels that were built against an earlier minor version of a stable contract, in the core of today and in a later one.

They are wheels and not sources, because what counts is what somebody installed years ago. Together they serve a whole model, and
the answers must be those of our own plugins.
"""

from __future__ import annotations

import importlib
import json
import sys
import zipfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from jackfield import Engine
from jackfield.hookspecs import KINDS
from jackfield.stack.discovery.catalogue import Status
from jackfield.stack.discovery.scan import discover
from tests.e2e.engines import assert_alive, tiny
from tests.frozen.next_minor import STABLE, next_minor

FOLDER = Path(__file__).parent
SETS = sorted(path.name for path in FOLDER.iterdir() if list(path.glob("*.whl")))
PROMPTS = [[5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], [40, 41, 42], [5, 6, 7, 8, 20]]
GREEDY = {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True}
NOW = {kind: KINDS[kind].contract for kind in STABLE}
FROZEN: dict[str, Any] = {
    "schedule_policy": "frozen-shortest",
    "attention_backend": "frozen-dense",
    "metrics": ["frozen-table"],
    "observer": ["frozen-counts"],
    "model_impl": "frozen-llama",
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """The wheels of one set on the import path, unpacked as pip would."""
    site = tmp_path / "site"
    for wheel in (FOLDER / request.param).glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    monkeypatch.syspath_prepend(str(site))
    yield
    for name in [name for name in sys.modules if name.startswith("frozen_")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def expected(tiny_model: Path) -> list[list[int]]:
    """What our own plugins answer."""
    with tiny(tiny_model) as engine:
        return answers(engine)


def answers(engine: Engine) -> list[list[int]]:
    found = engine.generate(input_ids=PROMPTS, sampling_params=GREEDY)
    return [one["output_ids"] for one in found]


@pytest.mark.goal_row(18)
@pytest.mark.parametrize("core", ["now", "next minor"])
@pytest.mark.parametrize("installed", SETS, indirect=True)
@pytest.mark.usefixtures("installed")
def test_frozen_plugins_of_every_stable_kind_serve_a_model(
    core: str, tiny_model: Path, expected: list[list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = tmp_path / "counts.json"
    seen: set[bool] = set()
    with next_minor() if core == "next minor" else nullcontext():
        assert {KINDS[kind].contract[1] > NOW[kind][1] for kind in STABLE} == {core == "next minor"}
        policy = importlib.import_module("frozen_policy.plugin").ShortestFirst
        order = policy.order
        monkeypatch.setattr(
            policy, "order", lambda self, *given: seen.add(hasattr(given[-1], "later")) or order(self, *given)
        )
        options = {"observer.frozen-counts": {"file": str(counts)}, "schedule_policy.frozen-shortest": {"most": 8}}
        with tiny(tiny_model, **FROZEN, options=options, plugin_faults="raise", metrics_interval=0) as engine:
            assert answers(engine) == expected
            used = {row["kind"]: row["distribution"] for row in engine.get_server_info()["stack"]["plugins"]}
            assert {kind for kind, name in used.items() if name.startswith("frozen-")} == set(STABLE)
            shown = engine._runtime.monitor.expose("text/x")
            assert shown is not None
            assert shown.content_type == "text/plain; asked=text/x"
            assert "jackfield_num_requests_total 3" in shown.body.decode().splitlines()
            assert engine.get_server_info()["faults"] == {}
            assert_alive(engine)
        assert seen == {core == "next minor"}  # the core that was meant is the one that ran
        heard = json.loads(counts.read_text())
        assert heard["started"] == 1
        assert heard["prompt_tokens"] == sum(map(len, PROMPTS)) + 3
        assert heard["completion_tokens"] == 8 * len(PROMPTS) + 1
        assert heard["scheduled"] == heard["committed"] > 0
        assert heard["admitted"] == len(PROMPTS) + 1


def test_the_simulated_minor_has_grown_in_each_way(tiny_model: Path) -> None:
    from jackfield import hookspecs
    from jackfield.stack.loading import load

    with next_minor():
        assert hookspecs.SchedulerView.__dataclass_fields__["later"].default == "by default"
        assert hookspecs.AttentionBackend.later is not None  # type: ignore[attr-defined]
        hook = load.the_hook("attention")
        assert hook.parameters == ("context", "later")
        assert hook.context is not None
        assert "later" in hook.context.__dataclass_fields__
    assert "later" not in hookspecs.SchedulerView.__dataclass_fields__
    assert {kind: KINDS[kind].contract for kind in STABLE} == NOW


@pytest.mark.parametrize("installed", SETS, indirect=True)
@pytest.mark.usefixtures("installed")
def test_each_set_has_a_provider_of_every_stable_kind() -> None:
    rows = [row for row in discover() if row.distribution.startswith("frozen-")]
    assert sorted((row.kind, row.status) for row in rows) == [(kind, Status.OK) for kind in sorted(STABLE)]


@pytest.mark.parametrize("name", SETS)
def test_the_source_of_each_wheel_is_what_is_in_it(name: str) -> None:
    for wheel in (FOLDER / name).glob("*.whl"):
        package = wheel.name.partition("-")[0]
        with zipfile.ZipFile(wheel) as archive:
            packed = {one: archive.read(one) for one in archive.namelist() if one.startswith(package + "/")}
        source = FOLDER / name / "src" / package.replace("_", "-")
        assert packed == {str(file.relative_to(source)): file.read_bytes() for file in (source / package).glob("*.*")}


def test_there_is_a_set_for_each_minor_version_of_the_stable_kinds() -> None:
    """A kind of version 1.2 needs the sets v1_0, v1_1 and v1_2."""
    wanted = {f"v{KINDS[kind].contract[0]}_{minor}" for kind in STABLE for minor in range(KINDS[kind].contract[1] + 1)}
    assert wanted <= set(SETS)
