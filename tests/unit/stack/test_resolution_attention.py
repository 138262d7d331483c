"""Resolution: who computes attention, and in which KV layout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jackfield.config.device import DeviceDescription
from jackfield.config.errors import ConfigurationError
from jackfield.config.server_args import ServerArgs
from jackfield.hookspecs import KVLayout, KVTensorSpec, Need
from jackfield.stack.discovery.catalogue import PluginRow, Status
from jackfield.stack.selection.resolution import resolve
from tests.unit.stack.catalogues import CPU, catalogue, facts, names, reason, refused, resolved, row


@pytest.mark.parametrize(
    ("manifest", "args", "text"),
    [
        ({"devices": ("cuda",)}, {}, f"it runs on cuda, this run is on cpu ({CPU.reason})"),
        ({"dtypes": ("float16", "float32")}, {}, "it computes in float16 or float32, this run in bfloat16 (--dtype)"),
        ({"layouts": ("acme/odd",)}, {}, "it accepts only KV layouts that nobody declares: acme/odd"),
    ],
)
def test_a_named_attention_plugin_that_lacks_something(
    manifest: dict[str, Any], args: dict[str, Any], text: str
) -> None:
    rows = catalogue(row("attention", "fast", **manifest))
    assert text in refused(rows, attention_backend="fast", **args)
    assert text in reason(resolved(rows, **args), "attention", "fast")


def test_features_of_the_model_must_be_offered() -> None:
    rows = catalogue(row("attention", "windowed", features=("window", "soft_cap")))
    model = facts(features=frozenset({"window"}))
    resolution = resolved(rows, model=model)
    assert names(resolution)["attention"] == "windowed"
    assert reason(resolution, "attention", "torch") == (
        "the model LlamaForCausalLM needs 'window', which it does not offer"
    )
    assert "needs 'window'" in refused(rows, model=model, attention_backend="torch")


def test_a_probe_says_what_lists_cannot() -> None:
    rows = catalogue(
        row("attention", "fast", priority=99, layouts=("hnd-paged", "nhd-paged"), probe="acme.probe:check")
    )
    asked: list[Need] = []

    def prober(plugin: PluginRow, need: Need, device: DeviceDescription) -> list[str]:
        if plugin.name != "fast":
            return []
        asked.append(need)
        return [] if need.page_size == 16 and need.layout == "hnd-paged" else [f"no page of {need.page_size} tokens"]

    small = resolve(ServerArgs(), CPU, facts(), rows, prober=prober)
    assert names(small)["attention"] == "torch"
    assert reason(small, "attention", "fast") == "no page of 1 tokens"
    assert {need.head_sizes for need in asked} == {(64,)}
    assert [need.layout for need in asked] == ["hnd-paged", "nhd-paged"]  # what it likes best is first
    large = resolve(ServerArgs(page_size=16), CPU, facts(), rows, prober=prober)
    assert names(large)["attention"] == "fast"
    assert large.stack.layout is not None
    assert large.stack.layout.name == "hnd-paged"


def test_two_phases_by_two_plugins_agree_on_a_layout() -> None:
    rows = catalogue(row("attention", "fast", layouts=("hnd-paged",)))
    resolution = resolved(rows, decode_attention_backend="fast")
    assert [(p.name, p.phases) for p in resolution.stack.of("attention")] == [
        ("torch", ("prefill",)),
        ("fast", ("decode",)),
    ]
    assert resolution.stack.layout is not None
    assert resolution.stack.layout.name == "hnd-paged"
    assert resolution.args.prefill_attention_backend == "torch"
    assert resolution.args.attention_backend is None
    assert not [r for r in resolution.stack.rejected if r.kind == "attention"]
    named = resolved(rows, attention_backend="torch", decode_attention_backend="fast")
    assert [p.name for p in named.stack.of("attention")] == ["torch", "fast"]


def test_two_phases_without_a_common_layout_are_refused() -> None:
    rows = catalogue(row("attention", "n", layouts=("nhd-paged",)), row("attention", "h", layouts=("hnd-paged",)))
    message = refused(rows, prefill_attention_backend="n", decode_attention_backend="h")
    assert "it accepts the KV layouts hnd-paged, and 'n', which serves prefill, accepts nhd-paged" in message


def test_the_free_phase_may_fall_to_the_plugin_that_was_named_for_the_other() -> None:
    resolution = resolved(prefill_attention_backend="torch")
    (attention,) = resolution.stack.of("attention")
    assert attention.phases == ("prefill", "decode")
    assert resolution.args.decode_attention_backend == "torch"
    assert resolution.args.attention_backend is None


def test_one_plugin_for_both_phases_is_one() -> None:
    (attention,) = resolved(prefill_attention_backend="torch", decode_attention_backend="torch").stack.of("attention")
    assert attention.phases == ("prefill", "decode")


def test_operators_weigh_in_on_the_layout_without_a_veto() -> None:
    fused = row("ops", "fused", priority=50, layouts=("hnd-paged",))
    resolution = resolved(catalogue(fused))
    assert resolution.stack.layout is not None
    assert resolution.stack.layout.name == "hnd-paged"
    only_nhd = resolved(catalogue(fused, row("attention", "n")), attention_backend="n")
    assert only_nhd.stack.layout is not None
    assert only_nhd.stack.layout.name == "nhd-paged"
    assert only_nhd.stack.layout_reason == (
        "the first that attention accepts; ops 'fused' cannot write it and leaves that to attention"
    )
    any_layout = resolved(catalogue(row("ops", "easy", priority=50, layouts=("*",))))
    assert any_layout.stack.layout is not None
    assert (any_layout.stack.layout.name, any_layout.stack.layout_reason) == (
        "nhd-paged",
        "the first that attention accepts",
    )


def test_a_declared_layout_comes_after_the_cores() -> None:
    odd = KVLayout(name="odd/fused", tensors=(KVTensorSpec(role="kv", shape=("page", 2, "kv_heads", "head")),))
    plugin = replace(row("attention", "odd", layouts=("odd/fused",)), layouts=(odd,))
    resolution = resolved(catalogue(plugin), attention_backend="odd")
    assert resolution.stack.layout == odd


def test_a_layout_whose_declarer_is_in_conflict_is_nobodys() -> None:
    odd = KVLayout(name="odd/fused", tensors=(KVTensorSpec(role="kv", shape=("page", 2, "kv_heads", "head")),))
    rivals = [
        replace(
            row("attention", "odd", distribution=distribution, layouts=("odd/fused",), status=Status.CONFLICT),
            layouts=(odd,),
        )
        for distribution in ("acme-odd", "zeta-odd")
    ]
    guest = row("attention", "guest", layouts=("odd/fused",))
    message = refused(catalogue(*rivals, guest), attention_backend="guest")
    assert "it accepts only KV layouts that nobody declares: odd/fused" in message


@pytest.mark.parametrize("kind", ["attention", "ops"])
def test_all_that_keeps_a_named_plugin_from_serving_is_told_together(kind: str) -> None:
    """Also what only its probe knows, and before the model is here; a probe that fails on a foreign device is no reason."""
    named: dict[str, Any] = {{"attention": "attention_backend", "ops": "ops"}[kind]: "fast"}
    rows = catalogue(
        row(kind, "fast", devices=("cuda",), probe="acme.probe:check"),
        row(kind, "odd", devices=("cuda",), probe="acme.probe:check"),
    )

    def prober(plugin: PluginRow, need: Need, device: DeviceDescription) -> list[str]:
        return {"fast": ["the package fast is not installed"], "odd": ["its probe x:y failed: KeyError"]}.get(
            plugin.name, []
        )

    for model in (facts(), None):
        with pytest.raises(ConfigurationError) as caught:
            resolve(ServerArgs(**named), CPU, model, rows, prober=prober)
        assert str(caught.value).endswith(
            f"it runs on cuda, this run is on cpu ({CPU.reason}); the package fast is not installed"
        )
    found = resolve(ServerArgs(), CPU, facts(), rows, prober=prober)
    assert reason(found, kind, "fast").endswith("; the package fast is not installed")
    assert reason(found, kind, "odd") == f"it runs on cuda, this run is on cpu ({CPU.reason})"
