"""Resolution: the dtype of the KV cache goes to attention that keeps it, and what a worker would not heed is refused."""

from __future__ import annotations

from typing import Any

import pytest

from jackfield.config.device import DeviceDescription
from jackfield.config.server_args import ServerArgs
from jackfield.hookspecs import Need
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow
from jackfield.stack.selection.memory import memory_fields
from jackfield.stack.selection.resolution import resolve
from tests.unit.stack.catalogues import CPU, catalogue, facts, names, reason, refused, resolved, row

FEATURES = ("token_masks", "kv_dtype", "mem_fraction")


def heeding(*more: PluginRow) -> Catalogue:
    """With a worker that heeds both."""
    needs = ("attention", "ops", "model", "loader")
    return catalogue(row("worker", "real", priority=20, needs=needs, features=FEATURES), *more)


NARROW = row("attention", "narrow", priority=1, features=("kv:fp8_e4m3", "kv:float32"))


def test_an_unnamed_kv_dtype_is_the_runs() -> None:
    found = resolved()
    (change,) = [change for change in found.changes if change.field == "kv_cache_dtype"]
    assert (change.before, change.after, change.rule) == ("auto", "bfloat16", "the run's dtype")
    assert memory_fields(found.args) == {}
    assert memory_fields(resolved(kv_cache_dtype="bfloat16").args) == {}  # the same, named: nobody need declare it
    assert resolved(worker="simulated").args.kv_cache_dtype == "auto"


def test_another_kv_dtype_goes_to_attention_that_declares_it() -> None:
    found = resolved(heeding(NARROW), kv_cache_dtype="fp8_e4m3")
    assert names(found)["attention"] == "narrow"
    assert reason(found, "attention", "torch") == (
        "--kv-cache-dtype fp8_e4m3 needs 'kv:fp8_e4m3', which it does not offer"
    )
    assert memory_fields(found.args) == {"kv_dtype": "fp8_e4m3"}
    assert names(resolved(heeding(NARROW)))["attention"] == "torch"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"kv_cache_dtype": "fp8_e5m2"}, "--kv-cache-dtype fp8_e5m2 needs 'kv:fp8_e5m2', which it does not offer"),
        ({"kv_cache_dtype": "fp8_e4m3", "attention_backend": "torch"}, "needs 'kv:fp8_e4m3'"),
        ({"kv_cache_dtype": "float16"}, "needs 'kv:float16'"),
    ],
)
def test_what_no_attention_keeps_is_refused(args: dict[str, Any], told: str) -> None:
    assert told in refused(heeding(NARROW), **args)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"kv_cache_dtype": "fp8_e4m3"}, "--kv-cache-dtype: fp8_e4m3 would have no effect, for worker plugin 'torch'"),
        ({"mem_fraction_static": 0.5}, "--mem-fraction-static: 0.5 would have no effect"),
        ({"mem_fraction_static": 0.5, "worker": "simulated"}, "(feature 'mem_fraction')"),
        ({"kv_cache_dtype": "fp8_e4m3", "worker": "simulated"}, "(feature 'kv_dtype')"),
    ],
)
def test_a_worker_that_would_not_heed_it_is_refused(args: dict[str, Any], told: str) -> None:
    assert told in refused(catalogue(NARROW), **args)


def test_the_probe_is_told() -> None:
    asked: list[Need] = []

    def prober(plugin: PluginRow, need: Need, device: DeviceDescription) -> list[str]:
        asked.extend([need] if plugin.name == "narrow" else [])
        return ["its processor knows no fp8"] if plugin.name == "narrow" and "kv:fp8_e4m3" in need.features else []

    rows = heeding(NARROW, row("attention", "wide", priority=-1, features=("kv:fp8_e4m3",)))
    found = resolve(ServerArgs(kv_cache_dtype="fp8_e4m3", attention_backend="wide"), CPU, facts(), rows, prober=prober)
    assert names(found)["attention"] == "wide"
    assert "its processor knows no fp8" in refused_by(rows, prober)
    assert asked[-1].features == frozenset({"kv:fp8_e4m3"})


def refused_by(rows: Catalogue, prober: Any) -> str:
    with pytest.raises(Exception, match="attention") as caught:
        resolve(ServerArgs(kv_cache_dtype="fp8_e4m3", attention_backend="narrow"), CPU, facts(), rows, prober=prober)
    return str(caught.value)


def test_before_the_model_is_here_only_what_no_run_computes_in_is_asked_for() -> None:
    rows = heeding(NARROW)
    asked: Any
    for asked, chosen in (("fp8_e4m3", "narrow"), ("float16", "torch")):
        found = resolve(ServerArgs(kv_cache_dtype=asked), CPU, None, rows)
        assert names(found)["attention"] == chosen
