"""From files to logits: the loaders' safetensors and GGUF sources on checkpoints that others wrote, against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import pytest

from jackfield.hookspecs import ModelSource, Shard
from jackfield.testing.conformance.model import IDS
from jackfield.testing.conformance.model_rig import ModelRig, close
from jackfield.testing.tiny_models import reference_logits, reference_model
from jackfield_models_loaders.gguf_source import GgufSource
from jackfield_models_loaders.safetensors_source import SafetensorsSource

BOTH = {"Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}
HEAD_SIZES = {"Qwen2ForCausalLM": 16, "Qwen3ForCausalLM": 24}  # of 4 heads for a hidden size of 64


class Rig(ModelRig):
    plugin = "qwen"

    def holds(self, architecture: str, source: ModelSource, reference: Any) -> None:
        """The source's model has the reference's logits."""
        model, report = self.build(architecture, source.config(), source.weights(Shard()))
        assert report.ok, report.problems()
        close(self.whole(model, IDS), reference_logits(reference, IDS), architecture)


def make(architecture: str, tied: bool) -> tuple[Rig, Any]:
    rig = Rig()
    config = rig.tiny(architecture, tie_word_embeddings=tied, head_dim=HEAD_SIZES[architecture])
    return rig, reference_model(architecture, config)


def write_gguf(reference: Any, name: str, path: Path) -> None:
    """As llama.cpp's converter does for these models: names mapped, rows as they are, F32; no tokenizer."""
    config = reference.config
    writer = gguf.GGUFWriter(path, name)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if name == "qwen3":
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, name.upper()), config.num_hidden_layers)
    for tensor, value in reference.state_dict().items():
        if not (tensor == "lm_head.weight" and config.tie_word_embeddings):
            mapped = names.get_name(tensor, try_suffixes=(".weight", ".bias"))
            assert mapped is not None
            writer.add_tensor(mapped, value.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", BOTH)
def test_safetensors(architecture: str, tied: bool, tmp_path: Path) -> None:
    rig, reference = make(architecture, tied)
    reference.save_pretrained(tmp_path)
    rig.holds(architecture, SafetensorsSource(tmp_path), reference)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", BOTH)
def test_gguf(architecture: str, tied: bool, tmp_path: Path) -> None:
    rig, reference = make(architecture, tied)
    write_gguf(reference, BOTH[architecture], tmp_path / "model.gguf")
    rig.holds(architecture, GgufSource(tmp_path), reference)
