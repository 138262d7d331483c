"""Hand-made catalogues and runs: resolution is pure, so its tests need no files."""

from __future__ import annotations

from typing import Any

import pytest

from jackfield.config.device import DeviceDescription
from jackfield.config.embedded import embedded_config
from jackfield.config.errors import ConfigurationError
from jackfield.config.model_config import ModelConfig
from jackfield.config.server_args import ServerArgs
from jackfield.hookspecs import AttentionLayer, KVGroup, ModelShape
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow, Status
from jackfield.stack.discovery.manifest import ManifestRow
from jackfield.stack.resolved import ModelFacts
from jackfield.stack.selection.resolution import Resolution, resolve

CPU = DeviceDescription(
    type="cpu", name="test", available_memory=1 << 30, total_memory=1 << 30, cores=1, reason="a test"
)

OURS = {
    "attention": "jackfield-attention-torch",
    "cache": "jackfield-cache-prefix",
    "schedule_policy": "jackfield-scheduler-policies",
    "event_loop": "jackfield-scheduler-loops",
    "model": "jackfield-models-llama",
    "loader": "jackfield-models-loaders",
    "worker": "jackfield-worker-torch",
    "ops": "jackfield-ops-torch",
    "metrics": "jackfield-observability-prometheus",
    "observer": "jackfield-observability-jsonl",
    "parser": "jackfield-parser-tools",
}


def row(
    kind: str,
    name: str,
    *,
    distribution: str | None = None,
    version: str = "0.1.0",
    status: Status = Status.OK,
    problem: str = "",
    **manifest: Any,
) -> PluginRow:
    """A row of one of our own distributions, or of a stranger's."""
    distribution = distribution or OURS[kind]
    package = distribution.replace("-", "_")
    if kind == "attention":
        manifest.setdefault("layouts", ("nhd-paged",))
    return PluginRow(
        kind=kind,
        name=name,
        distribution=distribution,
        version=version,
        status=status,
        problem=problem,
        module=f"{package}.{name}",
        package=package,
        manifest=None if status is Status.BROKEN else ManifestRow(kind=kind, name=name, **manifest),
    )


def standard() -> list[PluginRow]:
    """Rows like those of our own plugins."""
    return [
        row("attention", "torch", priority=10, layouts=("nhd-paged", "hnd-paged"), dtypes=("float32", "bfloat16")),
        row("cache", "radix", priority=10, features=("cached_tokens",)),
        row("cache", "chunk"),
        row("schedule_policy", "fcfs", priority=10),
        row("schedule_policy", "shortest", needs=("cached_tokens",)),
        row("event_loop", "normal", priority=10),
        row("model", "llama", architectures=("LlamaForCausalLM", "MistralForCausalLM")),
        row("loader", "gguf", files=("*.gguf",)),
        row("loader", "safetensors", files=("*.safetensors", "*.safetensors.index.json")),
        row("loader", "dummy"),
        row(
            "worker",
            "torch",
            priority=10,
            needs=("attention", "ops", "model", "loader"),
            devices=("cpu", "cuda"),
            features=("token_masks",),
        ),
        row("worker", "simulated", distribution="jackfield-worker-simulated", priority=-10),
        row("ops", "torch", priority=10),
        row("parser", "hermes", features=("tool_calls",), templates=(("<tool_call>",),)),
        row("parser", "xml", features=("tool_calls",), templates=(("<tool_call>", "<function="),)),
        row(
            "parser",
            "think",
            distribution="jackfield-parser-reasoning",
            features=("reasoning",),
            templates=(("</think>",),),
        ),
        row("metrics", "prometheus"),
        row("observer", "jsonl"),
    ]


def catalogue(*more: PluginRow, without: str | None = None) -> Catalogue:
    """The standard rows and `more`, without those of the kind or "kind.name" `without`."""
    kept = [r for r in standard() if without not in (r.kind, f"{r.kind}.{r.name}")]
    return Catalogue(tuple(sorted([*kept, *more], key=lambda r: (r.kind, r.name, r.distribution))))


def facts(
    *,
    features: frozenset[str] = frozenset(),
    files: tuple[str, ...] = ("m.gguf",),
    chat_template: str = "",
    **config: Any,
) -> ModelFacts:
    layer = AttentionLayer(id=0, group="full", num_heads=9, num_kv_heads=3, head_size=64, v_head_size=64, scale=0.125)
    group = KVGroup(name="full", kind="full", layers=(0,), num_kv_heads=3, head_size=64, v_head_size=64)
    parsed = ModelConfig.from_hf(embedded_config() | config, source="config.json")
    shape = ModelShape(
        architecture=parsed.architecture,
        num_layers=1,
        hidden_size=576,
        vocab_size=parsed.vocab_size,
        max_context=parsed.context_length,
        dtype="bfloat16",
        layers=(layer,),
        groups=(group,),
        features=features,
    )
    return ModelFacts(name="m", file=files[0], files=files, config=parsed, shape=shape, chat_template=chat_template)


def resolved(
    rows: Catalogue | None = None,
    *,
    model: ModelFacts | None = None,
    provenance: dict[str, str] | None = None,
    **args: Any,
) -> Resolution:
    return resolve(ServerArgs(**args), CPU, model or facts(), rows or catalogue(), provenance)


def names(resolution: Resolution) -> dict[str, str]:
    return {plugin.kind: plugin.name for plugin in resolution.stack.plugins}


def reason(resolution: Resolution, kind: str, name: str) -> str:
    """Why a plugin was rejected."""
    (found,) = [r.reason for r in resolution.stack.rejected if (r.kind, r.name) == (kind, name)]
    return found


def refused(rows: Catalogue | None = None, **args: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        resolved(rows, **args)
    return str(caught.value)
