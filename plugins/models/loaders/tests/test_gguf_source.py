"""GGUF weights and configurations, against the `gguf` package's reading and transformers'."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from jackfield.hookspecs import LoaderContext, ModelSourceError, Shard, Weight
from jackfield.layers.quantization import ENCODINGS
from jackfield_models_loaders import gguf as plugin
from jackfield_models_loaders import gguf_source
from jackfield_models_loaders.ggml_types import PACKED_ENCODINGS, PLAIN_DTYPES
from jackfield_models_loaders.gguf_source import GgufSource

Maker = Callable[..., Path]
Kind = gguf.GGMLQuantizationType
Array = np.ndarray[Any, Any]


def dense(weight: Weight) -> Array:
    """A weight's values in float32, decoded by the `gguf` package."""
    kind = getattr(Kind, weight.encoding.upper()) if weight.encoding != "plain" else None
    data = weight.parts["data"]
    if kind is None:
        kind = {"float32": Kind.F32, "float16": Kind.F16, "bfloat16": Kind.BF16}[weight.dtype]
        data = data.reshape(weight.shape[0], -1)
    if kind in (Kind.F32, Kind.F16):
        data = data.view(np.float32 if kind is Kind.F32 else np.float16)
    decoded: Array = gguf.quants.dequantize(data, kind).astype(np.float32).reshape(weight.shape)
    return decoded


def pairs_to_halves(rows: Array, heads: int) -> Array:
    """Hugging Face's rotary order from llama.cpp's, said row by row."""
    size = rows.shape[0] // heads
    order = [
        head * size + (2 * i if i < size // 2 else 2 * (i - size // 2) + 1)
        for head in range(heads)
        for i in range(size)
    ]
    return rows[order]


def llama_config(config: dict[str, Any]) -> transformers.LlamaConfig:
    return transformers.LlamaConfig(**{key: value for key, value in config.items() if key != "model_type"})


def weights(path: Path) -> dict[str, Weight]:
    found = list(GgufSource(path).weights(Shard()))
    assert len({weight.name for weight in found}) == len(found)
    return {weight.name: weight for weight in found}


@pytest.mark.parametrize(
    "kind",
    [getattr(Kind, name.upper()) for name in (*PLAIN_DTYPES, *sorted(PACKED_ENCODINGS))],
    ids=lambda kind: kind.name,
)
def test_values_are_the_gguf_package_s(make_gguf: Maker, kind: Kind) -> None:
    path = make_gguf(kind=kind, tied=False, bias=True)
    ours = weights(path)
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    layer = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    seen = set()
    for tensor in gguf.GGUFReader(path).tensors:
        stem, _, part = tensor.name.rpartition(".")
        if stem.startswith("blk."):
            _, number, stem = stem.split(".")
            name = f"model.layers.{number}.{layer[stem]}.{part}"
        else:
            name = f"{names[stem]}.{part}"
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if stem in ("attn_q", "attn_k"):
            values = pairs_to_halves(values, 4 if stem == "attn_q" else 2)
        weight = ours[name]
        assert weight.shape == values.shape
        expected = "plain" if len(values.shape) == 1 or kind.name in ("F16", "F32", "BF16") else kind.name.lower()
        assert weight.encoding == expected
        if expected != "plain":
            assert weight.dtype == "float32"
            assert weight.parts["data"].shape[0] == weight.shape[0]
        else:
            assert weight.parts["data"].ndim == 1
        np.testing.assert_array_equal(dense(weight), values, err_msg=name)
        seen.add(name)
    assert seen == set(ours)


def test_what_is_given_packed_is_what_the_layers_decode() -> None:
    assert set(ENCODINGS) >= PACKED_ENCODINGS


def test_untouched_weights_are_views_of_the_file_and_nobody_can_change_it(make_gguf: Maker) -> None:
    path = make_gguf()
    before = path.read_bytes()
    up = weights(path)["model.layers.0.mlp.up_proj.weight"].parts["data"]
    assert not up.flags.owndata
    torch.from_numpy(up)  # writable, so no warning; the map is private
    up[:] = 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", [Kind.Q8_0, Kind.F16], ids=lambda k: k.name)
def test_model_is_transformers_own(make_gguf: Maker, kind: Kind) -> None:
    path = make_gguf(kind=kind, tied=False)
    config = GgufSource(path).config()
    reference = load_gguf_checkpoint(  # type: ignore[no-untyped-call]
        str(path), return_tensors=True, model_to_load=transformers.LlamaForCausalLM(llama_config(config))
    )
    ours = weights(path)
    theirs = reference["tensors"]
    assert set(ours) == set(theirs)
    for name, weight in ours.items():
        torch.testing.assert_close(torch.from_numpy(dense(weight)), theirs[name], rtol=0, atol=0, msg=name)
    theirs_config = reference["config"]
    for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"):
        assert config[key] == theirs_config[key], key
    assert config["rope_parameters"]["rope_theta"] == theirs_config["rope_theta"] == 50000.0
    assert config["tie_word_embeddings"] is theirs_config["tie_word_embeddings"] is False


def test_config_in_full(make_gguf: Maker) -> None:
    path = make_gguf()
    context = LoaderContext(
        kind="loader", name="gguf", instance="gguf", path=path, overrides={"rope_parameters": {"rope_theta": 7.0}}
    )
    assert plugin.jackfield_model_source(context).config() == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 268,
        "hidden_size": 256,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "hidden_act": "silu",
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 7.0},
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "weight_encodings": ["q8_0"],
    }


def test_config_names_the_packed_encodings_of_what_is_multiplied(make_gguf: Maker) -> None:
    def encodings(name: str, **more: Any) -> Any:
        return GgufSource(make_gguf(name, **more)).config().get("weight_encodings")

    odd = {"blk.0.extra.weight": np.ones((2, 2), dtype=np.float32)}
    assert encodings("f16", kind=Kind.F16) is None
    assert encodings("f32", kind=Kind.F32, tensors=odd) is None
    assert encodings("q4_1", kind=Kind.Q4_1) == ["q4_1"]
    # An embedding that has a head beside it is only looked up.
    assert encodings("two", kind=Kind.Q4_1, head_kind=Kind.Q8_0) == ["q4_1", "q8_0"]
    assert encodings("looked up", kind=Kind.Q4_1, tied=False, embedding_kind=Kind.Q8_0) == ["q4_1"]
    assert encodings("tied", kind=Kind.Q4_1, embedding_kind=Kind.Q8_0) == ["q4_1", "q8_0"]


def test_the_file_is_named_for_what_is_kept_of_its_weights(make_gguf: Maker) -> None:
    path = make_gguf()
    assert GgufSource(path).files() == GgufSource(path.parent).files() == (path,)


def test_reordered_rows_are_made_only_when_they_are_read(make_gguf: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    halves = gguf_source._halves

    def counted(data: Any, tensor: Any, heads: int) -> Any:
        made.append(tensor.name)
        return halves(data, tensor, heads)

    monkeypatch.setattr(gguf_source, "_halves", counted)
    found = {one.name: one for one in GgufSource(make_gguf()).weights(Shard())}
    assert made == []
    query = found["model.layers.1.self_attn.q_proj.weight"]
    assert query.parts["data"] is query.parts["data"]
    assert made == ["blk.1.attn_q.weight"]
    assert list(query.parts) == ["data"]
    with pytest.raises(KeyError):
        query.parts["scale"]


def test_config_says_what_the_file_says(make_gguf: Maker) -> None:
    assert GgufSource(make_gguf("untied.gguf", tied=False)).config()["tie_word_embeddings"] is False
    assert GgufSource(make_gguf("bias.gguf", bias=True)).config()["attention_bias"] is True
    for kind, dtype in ((Kind.F32, "float32"), (Kind.F16, "float16"), (Kind.BF16, "bfloat16")):
        assert GgufSource(make_gguf(f"{dtype}.gguf", kind=kind)).config()["dtype"] == dtype

    def more(writer: gguf.GGUFWriter) -> None:
        writer.add_eot_token_id(7)
        writer.add_float32("general.sampling.temp", 0.6)
        writer.add_int32("general.sampling.top_k", 20)

    config = GgufSource(make_gguf("more.gguf", metadata=more)).config()
    assert config["eos_token_id"] == 1
    assert config["generation_config"] == {"eos_token_id": [1, 7], "temperature": 0.6, "top_k": 20}


def test_layerwise_head_counts_that_are_all_equal_are_read(make_gguf: Maker) -> None:
    assert GgufSource(make_gguf(head_count=[4, 4])).config()["num_attention_heads"] == 4
    with pytest.raises(ModelSourceError, match=r"head_count.*differs from layer to layer"):
        GgufSource(make_gguf("mixed.gguf", head_count=[4, 8])).config()


def test_a_mistral_file_is_mistral(make_gguf: Maker) -> None:
    config = GgufSource(make_gguf(architecture="mistral")).config()
    assert (config["architectures"], config["model_type"]) == (["MistralForCausalLM"], "mistral")
    assert config["sliding_window"] is None


def make_qwen(make_gguf: Maker, architecture: str, **changes: Any) -> Path:
    """As llama.cpp's converter writes them: biases on q, k and v only, or norms of the heads and no rotary dimensions."""
    norms = {
        f"blk.{layer}.attn_{x}_norm.weight": np.linspace(1, 2, 64, dtype=np.float32) for layer in (0, 1) for x in "qk"
    }
    if architecture == "qwen2":
        outputs = tuple(f"blk.{layer}.attn_output.bias" for layer in (0, 1))
        return make_gguf("qwen2.gguf", architecture="qwen2", bias=True, leave_out=outputs, pre="qwen2", **changes)
    return make_gguf("qwen3.gguf", architecture="qwen3", tensors=norms, pre="qwen2", **changes)


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_a_qwen_file_is_transformers_own(make_gguf: Maker, architecture: str) -> None:
    path = make_qwen(make_gguf, architecture, kind=Kind.Q8_0, tied=False)
    config = GgufSource(path).config()
    assert (config["architectures"], config["model_type"]) == ([f"Q{architecture[1:]}ForCausalLM"], architecture)
    assert config.get("attention_bias", False) is False
    assert GgufSource(path).tokenizer().tokenizer_json
    own = getattr(transformers, f"Q{architecture[1:]}Config")(**{k: v for k, v in config.items() if k != "model_type"})
    model: Any = getattr(transformers, f"Q{architecture[1:]}ForCausalLM")(own)
    reference = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)  # type: ignore[no-untyped-call]
    ours = weights(path)
    assert set(ours) == set(reference["tensors"]) == set(model.state_dict())
    for name, weight in ours.items():
        theirs = reference["tensors"][name]
        torch.testing.assert_close(torch.from_numpy(dense(weight)), theirs, rtol=0, atol=0, msg=name)


def test_a_qwen_window_without_its_layers_is_refused(make_gguf: Maker) -> None:
    path = make_qwen(make_gguf, "qwen2", metadata=lambda writer: writer.add_sliding_window(32))
    assert "qwen2.attention.sliding_window" in refusal(lambda: GgufSource(path).config(), path)


def scaling(**entries: Any) -> Callable[[gguf.GGUFWriter], None]:
    def add(writer: gguf.GGUFWriter) -> None:
        for key, value in entries.items():
            name = "llama.rope." + key.replace("__", ".")
            if isinstance(value, str):
                writer.add_string(name, value)
            elif isinstance(value, int):
                writer.add_uint32(name, value)
            else:
                writer.add_float32(name, value)

    return add


def test_rope_scalings(make_gguf: Maker) -> None:
    def rope(name: str, **entries: Any) -> dict[str, Any]:
        found = GgufSource(make_gguf(name, metadata=scaling(**entries))).config()["rope_parameters"]
        assert found.pop("rope_theta") == 50000.0
        return dict(found)

    assert rope("none", scaling__type="none") == {"rope_type": "default"}
    assert rope("linear", scaling__type="linear", scaling__factor=4.0) == {"rope_type": "linear", "factor": 4.0}
    assert rope("old", scale_linear=2.0) == {"rope_type": "linear", "factor": 2.0}
    yarn = {"scaling__type": "yarn", "scaling__factor": 4.0, "scaling__original_context_length": 32}
    expected = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    assert rope("yarn", **yarn) == expected
    scaled = rope("yarn-attn", **yarn, scaling__attn_factor=0.5, scaling__yarn_beta_fast=16.0)
    assert scaled.pop("attention_factor") == pytest.approx(0.5 * (0.1 * math.log(4) + 1))
    assert scaled == {**expected, "beta_fast": 16.0}
    for bad in (
        {"scaling__type": "longrope", "scaling__factor": 2.0},
        {"scaling__type": "linear", "scaling__factor": -1.0},
        {"scaling__type": "yarn", "scaling__factor": 2.0},
        {**yarn, "scaling__yarn_ext_factor": 0.5},
    ):
        with pytest.raises(ModelSourceError, match="scaling"):
            rope("bad", **bad)


@pytest.mark.parametrize(
    ("factor", "low", "high", "context"), [(8.0, 1.0, 4.0, 8192), (32.0, 1.0, 4.0, 8192), (4.0, 2.0, 6.0, 4096)]
)
def test_llama3_scaling_is_found_back_from_its_divisors(
    make_gguf: Maker, factor: float, low: float, high: float, context: int
) -> None:
    """The divisors as llama.cpp's converter writes them; the parameters found must give transformers' frequencies."""
    theta, size = 50000.0, 64
    frequencies = 1.0 / theta ** (np.arange(0, size, 2) / size)
    divisors = []
    for frequency in frequencies:
        wavelength = 2 * math.pi / frequency
        if wavelength < context / high:
            divisors.append(1.0)
        elif wavelength > context / low:
            divisors.append(factor)
        else:
            smooth = (context / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    path = make_gguf(tensors={"rope_freqs.weight": np.array(divisors, dtype=np.float32)})
    source = GgufSource(path)
    config = source.config()
    rope = config["rope_parameters"]
    assert rope["rope_type"] == "llama3"
    if low == 1.0:
        assert (rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]) == (factor, low, high)
        assert rope["original_max_position_embeddings"] == context
    inverse, _ = ROPE_INIT_FUNCTIONS["llama3"](llama_config(config), "cpu")
    np.testing.assert_allclose(inverse.numpy(), frequencies / np.array(divisors), rtol=1e-4)
    assert "rope_freqs.weight" not in weights(path)


def test_other_rope_divisors_are_refused(make_gguf: Maker) -> None:
    for name, divisors in (("random", np.linspace(1, 9, 32) ** 2), ("short", np.ones(3)), ("nan", np.full(32, np.nan))):
        path = make_gguf(name, tensors={"rope_freqs.weight": divisors.astype(np.float32)})
        with pytest.raises(ModelSourceError, match=r"rope_freqs\.weight"):
            GgufSource(path).config()


def refusal(action: Callable[[], object], path: Path) -> str:
    with pytest.raises(ModelSourceError) as caught:
        action()
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_refusals_name_what_is_wrong(make_gguf: Maker) -> None:
    path = make_gguf("gemma.gguf", architecture="gemma3")
    says = refusal(lambda: GgufSource(path).config(), path)
    assert "gemma3" in says
    assert "llama" in says
    path = make_gguf("ternary.gguf", kind=Kind.TQ1_0)
    says = refusal(lambda: GgufSource(path).weights(Shard()), path)
    assert "token_embd.weight" in says
    assert "tq1_0" in says
    assert "q8_0" in says
    path = make_gguf("extra.gguf", tensors={"blk.0.attn_sinks.weight": np.ones(4, dtype=np.float32)})
    assert "attn_sinks" in refusal(lambda: GgufSource(path).weights(Shard()), path)
    path = make_gguf("moe.gguf", metadata=lambda writer: writer.add_expert_count(8))
    assert "mixture of experts" in refusal(lambda: GgufSource(path).config(), path)
    path = make_gguf("split.gguf", metadata=lambda writer: writer.add_uint16("split.count", 3))
    assert "llama-gguf-split" in refusal(lambda: GgufSource(path).config(), path)
    path = make_gguf("partial.gguf", metadata=lambda writer: writer.add_key_length(32))
    assert "rotary dimensions of 64" in refusal(lambda: GgufSource(path).config(), path)
    path = make_gguf("headless.gguf", leave_out=("token_embd.weight",))
    assert "token_embd.weight" in refusal(lambda: GgufSource(path).config(), path)
    linears = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    layer = tuple(f"blk.1.{stem}.weight" for stem in ("attn_norm", "ffn_norm", *linears))
    path = make_gguf("short.gguf", leave_out=layer)
    assert "layers 0 to 1" in refusal(lambda: GgufSource(path).config(), path)


def test_a_directory_with_one_gguf_file(make_gguf: Maker, tmp_path: Path) -> None:
    assert "no .gguf file" in refusal(lambda: GgufSource(tmp_path), tmp_path)
    path = make_gguf()
    assert GgufSource(tmp_path).path == path
    make_gguf("second.gguf")
    says = refusal(lambda: GgufSource(tmp_path), tmp_path)
    assert "second.gguf" in says
    assert "tiny.gguf" in says


def test_gemma3_is_transformers_own(make_gguf: Maker) -> None:
    """Four norms a layer and two of heads, all stored with the 1 that Hugging Face leaves out; a rope for each kind of layer."""
    rng = np.random.default_rng(0)
    sizes = {"attn_q_norm": 64, "attn_k_norm": 64, "post_attention_norm": 256, "post_ffw_norm": 256}
    norms = {
        f"blk.{layer}.{stem}.weight": rng.standard_normal(size, dtype=np.float32)
        for layer in range(2)
        for stem, size in sizes.items()
    }

    def metadata(writer: gguf.GGUFWriter) -> None:
        writer.add_sliding_window(7)
        writer.add_final_logit_softcapping(30.0)

    path = make_gguf(architecture="gemma3", tensors=norms, metadata=metadata)
    config = GgufSource(path).config()
    assert config["architectures"] == ["Gemma3ForCausalLM"]
    assert {kind: rope["rope_theta"] for kind, rope in config["rope_parameters"].items()} == {
        "full_attention": 50000.0,
        "sliding_attention": 10000.0,
    }
    assert (config["sliding_window"], config["sliding_window_pattern"], config["query_pre_attn_scalar"]) == (7, 6, 64)
    assert (config["hidden_activation"], config["final_logit_softcapping"]) == ("gelu_pytorch_tanh", 30.0)
    entries = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
    model = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**entries))
    theirs = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]  # type: ignore[no-untyped-call]
    ours = weights(path)
    assert set(ours) == set(theirs)
    for name, weight in ours.items():
        torch.testing.assert_close(torch.from_numpy(dense(weight)), theirs[name], rtol=0, atol=0, msg=name)


def test_gemma3_norms_that_are_not_float32_are_refused(make_gguf: Maker) -> None:
    half = {"blk.0.attn_q_norm.weight": np.ones(64, dtype=np.float16)}
    path = make_gguf(architecture="gemma3", tensors=half, metadata=lambda writer: writer.add_sliding_window(7))
    with pytest.raises(ModelSourceError, match=r"attn_q_norm.weight' is f16, not f32"):
        list(GgufSource(path).weights(Shard()))
