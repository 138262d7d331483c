"""The conformance suite of kind `model`: tiny random checkpoints of each architecture, held against transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from jackfield.config.context_length import derive_context_length
from jackfield.hookspecs import CLASSIFICATION, Model, ModelShape, Shard, UnsupportedModel
from jackfield.testing import model_variations
from jackfield.testing.conformance.model_rig import ModelRig, Pieces, close, has_logits
from jackfield.testing.dense_context import DenseContext, Ranks
from jackfield.testing.tiny_models import (
    TINY,
    in_dtype,
    reference_body,
    reference_logits,
    reference_model,
    told,
    weight,
    weights_of,
)

IDS = [int(i) for i in np.random.default_rng(3).integers(3, TINY["vocab_size"], 60)]


class ModelConformance(ModelRig):
    """For each architecture of the manifest; what an author may set stands in `ModelRig`."""

    # --- what the runtime plans with ---

    def test_describe_imports_no_torch(self) -> None:
        """`describe` works where torch is not imported, for every architecture that the manifest lists."""
        orders = {name: (self.entries()[name].shape, self.tiny(name)) for name in self.entries()}
        code = (
            "import importlib, json, sys\n"
            "from jackfield.hookspecs import Shard\n"
            "from jackfield.stack.loading.implementations import named_arguments\n"
            "for shape, config in json.load(sys.stdin).values():\n"
            "    module, _, name = shape.partition(':')\n"
            "    describe = getattr(importlib.import_module(module), name)\n"
            "    describe(**named_arguments(describe, {'config': config, 'shard': Shard()}))\n"
            "sys.exit('torch has been imported' if 'torch' in sys.modules else 0)\n"
        )
        command = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}"]
        ended = subprocess.run(command, input=json.dumps(orders), capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr.strip().splitlines()[-1]

    def test_shape(self) -> None:
        """The shape is that of the config: layers, groups, heads and vocabulary fit each other, and features name all that
        the layers ask of attention."""
        for name in self.entries():
            plain = self.tiny(name)
            windowed = {
                key: value for key, value in {"sliding_window": 7, "use_sliding_window": True}.items() if key in plain
            }
            for entries in ({}, windowed):
                config = self.tiny(name, **entries)
                try:
                    shape = self.describe(name, config)
                except UnsupportedModel:
                    assert entries, f"{name}: its own tiny config is refused"
                    continue
                self._fits(name, config, shape)

    def _fits(self, name: str, config: Mapping[str, Any], shape: ModelShape) -> None:
        assert (shape.architecture, shape.vocab_size) == (name, config["vocab_size"])
        assert shape.hidden_size == config["hidden_size"], f"{name}: hidden_size is {shape.hidden_size}"
        assert shape.num_layers == config["num_hidden_layers"], f"{name}: num_layers is {shape.num_layers}"
        if (longest := derive_context_length(config, name)) and not stretched(config):
            assert shape.max_context == longest, (
                f"{name}: max_context is {shape.max_context}, the config says {longest}"
            )
        assert [layer.id for layer in shape.layers] == list(range(len(shape.layers)))
        own = [layer for layer in shape.layers if layer.kv_source is None]
        grouped = sorted(layer for group in shape.groups for layer in group.layers)
        assert grouped == [layer.id for layer in own], "each layer with KV of its own is in one group"
        groups = {group.name: group for group in shape.groups}
        for layer in own:
            group = groups[layer.group]
            sizes = (layer.num_kv_heads, layer.head_size, layer.v_head_size, layer.window)
            wanted = (group.num_kv_heads, group.head_size, group.v_head_size, group.window)
            assert sizes == wanted, f"{name}: layer {layer.id} and its group {group.name!r} differ"
        asked = {
            "window": any(layer.window is not None for layer in shape.layers),
            "soft_cap": any(layer.soft_cap is not None for layer in shape.layers),
            "non_causal": any(not layer.causal for layer in shape.layers),
        }
        features = {feature for feature, wanted in asked.items() if wanted}
        assert shape.generates or shape.pooling is not None, f"{name} neither generates nor pools"
        assert shape.features == features, f"{name} asks of attention for {features}, and says {set(shape.features)}"

    def test_weight_bytes(self) -> None:
        """The estimate of the weights' memory is right within a tenth, for the whole and for a rank's share."""
        for name in self.entries():
            config = self.tiny(name)
            elements = sum(one.numel() for one in reference_model(name, config).parameters())
            found = self.describe(name, config).weight_bytes
            assert abs(found / (2 * elements) - 1) < 0.1, f"{name}: {found} bytes for {elements} elements of two bytes"
            for size in self.sizes(name, config):
                share = self.describe(name, config, Shard(tp_size=size)).weight_bytes
                assert 0.9 / size <= share / found < 1, f"{name}: one of {size} ranks holds {share} of {found} bytes"

    # --- numbers ---

    def test_prefill(self) -> None:
        """Logits in float32 equal transformers' at every position of a prompt."""
        for name in self.entries():
            config = self.tiny(name)
            reference = reference_model(name, config)
            found = self.whole(self.loaded_model(name, config, reference), IDS)
            close(found, reference_logits(reference, IDS), name)

    def test_chunks_and_decode(self) -> None:
        """The same in chunks, token by token, and with other sequences in the batch."""
        for name in self.entries():
            config = self.tiny(name)
            reference = reference_model(name, config)
            model = self.loaded_model(name, config, reference)
            sequences = [IDS[:31], IDS[31:50], IDS[50:]]
            pieces: Pieces = [[(0, 20)], [(0, 1), (1, 17)], [(2, 3), (0, 9), (1, 1)], [(0, 1), (1, 1), (2, 7)]]
            if not all(layer.causal for layer in self.describe(name, config).layers):
                pieces = [[(0, 31), (1, 19), (2, 10)]]  # its prompts are never cut
            found = self.logits(model, sequences, pieces)
            for ids, logits in zip(sequences, found, strict=True):
                close(logits, reference_logits(reference, ids), f"{name} in pieces")

    def test_variations(self) -> None:
        """Activations, biases, ties, windows, KV heads and rope types: as in transformers, or UnsupportedModel."""
        for name in self.entries():
            refused = 0
            variations = list(model_variations.right_or_refused(self.tiny(name)))
            for entries in variations:
                try:
                    config = self.tiny(name, **entries)
                    reference = reference_model(name, config)
                except Exception:  # transformers itself refuses the combination: there is nothing to be equal to
                    continue
                try:
                    model = self.loaded_model(name, config, reference)
                except UnsupportedModel:
                    refused += 1
                    continue
                close(self.whole(model, IDS), reference_logits(reference, IDS), f"{name} with {entries}")
            self.measured(f"{name}: config variations of {len(variations)} that are refused", refused)

    def test_low_precision(self) -> None:
        """In each lower dtype that it claims, as close to the exact logits as transformers in that dtype."""
        for name in self.entries():
            config = self.tiny(name)
            reference = reference_model(name, config, scale=0.1)
            exact = reference_logits(reference, IDS)
            for dtype in self.dtypes():
                if dtype == "float32":
                    continue
                theirs = in_dtype(reference, name, config, getattr(torch, dtype))
                ours = self.whole(self.loaded_model(name, config, theirs, dtype=dtype), IDS)
                error, allowed = (ours - exact).norm(), 1.3 * (reference_logits(theirs, IDS) - exact).norm()
                assert error <= allowed, f"{name} in {dtype} is off by {error:.3f}, transformers by {allowed / 1.3:.3f}"

    def test_embeds(self) -> None:
        """`embeds` replace what the ids would give."""
        for name in self.entries():
            config = self.tiny(name)
            reference = reference_model(name, config)
            embeds = torch.randn(9, config["hidden_size"], generator=torch.Generator().manual_seed(1))
            with torch.inference_mode():
                wanted = told(reference, reference_body(reference)(inputs_embeds=embeds[None]))
            model = self.loaded_model(name, config, reference)
            context = DenseContext(self.operators_of(model))
            context.step([(0, 9)])
            with torch.inference_mode():
                hidden = model.forward(torch.zeros(9, dtype=torch.int64), context, embeds)
                found = model.logits(hidden, context) if has_logits(model) else hidden.float()
            close(found, wanted, f"{name} with embeds")

    def test_pooling(self) -> None:
        """What it gives of whole prompts has the width that its shape says, in float32, and is the same whatever else is in the
        forward; logits of labels equal transformers'."""
        tried = 0
        sequences = [IDS[:31], IDS[31:50], IDS[50:51], IDS[51:]]
        for name in self.entries():
            config = self.tiny(name)
            pooling = self.describe(name, config).pooling
            if pooling is None:
                continue
            tried += 1
            reference = reference_model(name, config)
            model = self.loaded_model(name, config, reference)
            together = self._pooled(model, sequences)
            assert together.dtype == torch.float32, f"{name} pools in {together.dtype}"
            assert together.shape == (4, pooling.width), f"{name} gives {tuple(together.shape)} for 4 prompts"
            close(together, torch.cat([self._pooled(model, [one]) for one in sequences]), f"{name}, pooled alone")
            if pooling.kind == CLASSIFICATION:
                with torch.inference_mode():
                    wanted = torch.cat([reference(torch.tensor([ids])).logits for ids in sequences])
                close(together, wanted, f"{name}, labels")
                assert len(pooling.labels) == pooling.width, f"{name} names {len(pooling.labels)} labels"
        if not tried:
            self.not_claimed("no architecture of it pools")

    def _pooled(self, model: Model, sequences: Sequence[list[int]]) -> torch.Tensor:
        context = DenseContext(self.operators_of(model))
        context.step([(i, len(ids)) for i, ids in enumerate(sequences)])
        starts = torch.tensor([0, *(len(ids) for ids in sequences)]).cumsum(0)
        with torch.inference_mode():
            hidden = model.forward(torch.tensor([token for ids in sequences for token in ids]), context)
            return model.pool(hidden, starts, context)

    # --- weights ---

    def test_load_report(self) -> None:
        """What is missing, unexpected or of the wrong shape is told by name, all in one report."""
        for name in self.entries():
            config = self.tiny(name)
            given = list(weights_of(reference_model(name, config)))
            _, report = self.build(name, config, given)
            assert report.ok, f"{name}: {'; '.join(report.problems())}"
            assert report.loaded == len(given), f"{name}: {report.loaded} of {len(given)} tensors were used"
            matrices = [one for one in given if len(one.shape) == 2]
            gone, bent = matrices[1], matrices[-1]
            wrong = weight(bent.name, torch.zeros(bent.shape[0], bent.shape[1] + 1))
            kept = [one for one in given if one.name not in (gone.name, bent.name)]
            spoilt = [*kept[1:], wrong, weight("model.no_such.weight", torch.zeros(3)), kept[0]]
            _, report = self.build(name, config, spoilt)
            assert not report.ok
            assert report.missing == (gone.name,), f"{gone.name} is missing, the report says {report.missing}"
            assert report.unexpected == ("model.no_such.weight",), f"unexpected: {report.unexpected}"
            assert dict(report.mis_shaped) == {bent.name: (bent.shape, wrong.shape)}, f"{report.mis_shaped}"

    def test_any_order(self) -> None:
        """The checkpoint's tensors may come in any order."""
        for name in self.entries():
            config = self.tiny(name)
            reference = reference_model(name, config)
            given = list(weights_of(reference))
            order = np.random.default_rng(0).permutation(len(given)).tolist()
            model, report = self.build(name, config, [given[i] for i in order])
            assert report.ok
            close(self.whole(model, IDS[:9]), reference_logits(reference, IDS[:9]), f"{name} in another order")

    # --- ranks ---

    def test_ranks(self) -> None:
        """Tensor-parallel ranks together give the whole model's logits, on every rank; heads are shared out evenly."""
        tried = 0
        for name in self.entries():
            for entries in ({}, {"tie_word_embeddings": True}, {"attention_bias": True, "mlp_bias": True}):
                config = self.tiny(name, **{k: v for k, v in entries.items() if k in self.tiny(name)})
                reference = reference_model(name, config)
                wanted = reference_logits(reference, IDS[:20])
                heads = self.describe(name, config).layers[0].num_heads
                for size in self.sizes(name, config):
                    tried += 1
                    shards = [Shard(tp_rank=rank, tp_size=size) for rank in range(size)]
                    assert all(self.describe(name, config, one).layers[0].num_heads * size == heads for one in shards)
                    models = [self.loaded_model(name, config, reference, shard=one) for one in shards]
                    ranks = Ranks(size)

                    def work(rank: int, models: list[Model] = models, ranks: Ranks = ranks) -> torch.Tensor:
                        model = models[rank]
                        context = DenseContext(self.operators_of(model), ranks=ranks, rank=rank)
                        return self.whole(model, IDS[:20], context=context)

                    for rank, logits in enumerate(ranks.run(work)):
                        close(logits, wanted, f"{name}, rank {rank} of {size}")
        if not tried:
            self.not_claimed(f"describe refuses {' and '.join(map(str, self.tp_sizes))} ranks")

    # --- refusals ---

    def test_refusals(self) -> None:
        """A config entry that it does not know is an UnsupportedModel that names the entry, never wrong numbers."""
        for name in self.entries():
            for key, config in model_variations.refused(self.tiny(name)):
                try:
                    self.build(name, config, ())
                except UnsupportedModel as error:
                    words = str(error)
                except Exception as error:
                    words = f"{type(error).__name__}: {error}"
                    raise AssertionError(f"{name}: {key} {config.get(key)!r} raised {words}") from error
                else:
                    raise AssertionError(f"{name}: {key} {config.get(key)!r} was accepted")
                assert key in words, f"{name}: the refusal of {key} does not name it: {words}"


def stretched(config: Mapping[str, Any]) -> bool:
    """Whether a rope type of the config reaches further than its positions."""
    ropes = [config.get(key) or {} for key in ("rope_parameters", "rope_scaling")]
    every = [part for rope in ropes for part in (rope, *(one for one in rope.values() if isinstance(one, dict)))]
    return any(one.get("rope_type", one.get("type", "default")) != "default" for one in every)
