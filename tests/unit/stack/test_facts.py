from __future__ import annotations

import json
from pathlib import Path

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.config.server_args import ServerArgs
from jackfield.stack.discovery.scan import discover
from jackfield.stack.errors import PluginLoadError
from jackfield.stack.resolved import ModelFacts
from jackfield.stack.selection.facts import gather_model_facts
from tests.unit.stack.catalogues import CPU
from tests.unit.stack.distributions import Site, fresh_package, plugin_row

LOADER = """
import json
from jackfield.hookspecs import ModelSource, ModelSourceError, hookimpl

print("noise at import")


class Source(ModelSource):
    def __init__(self, context):
        self.path = context.path

    def config(self):
        text = self.path.read_text()
        if not text:
            raise ModelSourceError(f"{self.path} is empty: fetch it again")
        if text == "crash":
            raise ZeroDivisionError("odd")
        return json.loads(text)

    def tokenizer(self):
        raise ModelSourceError(f"{self.path} has no tokenizer")

    def weights(self, shard):
        raise NotImplementedError


@hookimpl
def jackfield_model_source(context):
    return Source(context)
"""

MODEL = """
from jackfield.hookspecs import ModelEntry, hookimpl


@hookimpl
def jackfield_models():
    return {"OddForCausalLM": ModelEntry(shape="PACKAGE.shape:describe", model="PACKAGE.absent:Model")}
"""

SHAPE = """
from jackfield.hookspecs import AttentionLayer, KVGroup, ModelShape, UnsupportedModel


def describe(config, shard):
    if config.get("odd") == "refuse":
        raise UnsupportedModel("odd = 'refuse' is not done here")
    if config.get("odd") == "wrong":
        return 3
    if config.get("odd") == "exit":
        raise SystemExit("odd")
    layer = AttentionLayer(
        id=0, group="w", num_heads=2, num_kv_heads=1, head_size=8, v_head_size=8, scale=0.5, window=4
    )
    group = KVGroup(name="w", kind="window", layers=(0,), num_kv_heads=1, head_size=8, v_head_size=8, window=4)
    return ModelShape(
        architecture="OddForCausalLM", num_layers=1, hidden_size=16, vocab_size=32, max_context=64, dtype="float32",
        layers=(layer,), groups=(group,), features=frozenset({"window"}),
    )
"""

CONFIG = {"architectures": ["OddForCausalLM"], "vocab_size": 32, "max_position_embeddings": 64, "dtype": "float32"}


@pytest.fixture
def odd_site(live_site: Site) -> Site:
    """A loader of *.odd files, a model plugin for OddForCausalLM and a worker that uses it, all strangers'."""
    package = fresh_package("odd")
    live_site.add(
        "odd-parts",
        plugin_row("loader", "odd", files=["*.odd"], processes=["main", "scheduler"]),
        plugin_row("model", "odd-model", architectures=["OddForCausalLM"]),
        plugin_row("worker", "odd-worker", needs=["model"]),
        plugin_row("worker", "odd-simulator"),
        package=package,
        sources={"odd": LOADER, "odd_model": MODEL.replace("PACKAGE", package), "shape": SHAPE},
    )
    return live_site


def gather(
    tmp_path: Path, text: str | None = None, *, isolate: bool, worker: str = "odd-worker", **args: object
) -> ModelFacts:
    path = tmp_path / "m.odd"
    path.write_text(json.dumps(CONFIG) if text is None else text)
    given = ServerArgs.model_validate({"plugin_allow": ["odd-parts"], "worker": worker, "device": "cpu", **args})
    return gather_model_facts(given, path, discover(), isolate=isolate, device=CPU)


def test_facts_are_the_same_from_a_child_process(odd_site: Site, tmp_path: Path) -> None:
    here, there = (gather(tmp_path, isolate=isolate, context_length=32) for isolate in (False, True))
    assert here == there
    assert (here.name, here.files) == ("m.odd", ("m.odd",))
    assert here.config.context_length == 32
    assert here.shape is not None
    assert here.shape.layers[0].window == 4
    assert here.shape.features == {"window"}


def test_overrides_reach_the_configuration(odd_site: Site, tmp_path: Path) -> None:
    facts = gather(tmp_path, isolate=True, json_model_override_args={"max_position_embeddings": 128})
    assert facts.config.context_length == 128


def test_a_worker_without_a_model_asks_for_no_shape(odd_site: Site, tmp_path: Path) -> None:
    unknown = json.dumps(CONFIG | {"architectures": ["NobodyOffersThis"]})
    facts = gather(tmp_path, unknown, isolate=False, worker="odd-simulator")
    assert facts.shape is None
    assert facts.config.vocab_size == 32


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "m.odd is empty: fetch it again"),
        ("crash", "failed to read the configuration of .*m.odd: ZeroDivisionError: odd"),
        (json.dumps(CONFIG | {"odd": "refuse"}), "cannot run this model .*odd = 'refuse' is not done here"),
        (json.dumps(CONFIG | {"odd": "wrong"}), "shape:describe returned int, not a ModelShape"),
        (json.dumps(CONFIG | {"odd": "exit"}), "failed to describe OddForCausalLM: SystemExit: odd"),
        (
            json.dumps(CONFIG | {"architectures": ["Nobody"]}),
            "no installed model plugin offers the architecture Nobody",
        ),
        (json.dumps(CONFIG | {"vocab_size": None}), "m.odd: the entry 'vocab_size' is missing"),
    ],
)
def test_what_is_wrong_is_told_alike_from_here_and_from_a_child(
    odd_site: Site, tmp_path: Path, text: str, message: str, isolate: bool
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        gather(tmp_path, text, isolate=isolate)


def test_a_missing_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no file or directory"):
        gather_model_facts(ServerArgs(), tmp_path / "absent", discover(), isolate=False, device=CPU)


def test_a_broken_model_plugin_is_named(odd_site: Site, tmp_path: Path) -> None:
    (package,) = (path for path in odd_site.folder.iterdir() if (path / "shape.py").exists())
    (package / "shape.py").write_text("import surely_absent")
    with pytest.raises(PluginLoadError, match=r"model plugin 'odd-model' \(odd-parts 1.0\) cannot be imported"):
        gather(tmp_path, isolate=False)
