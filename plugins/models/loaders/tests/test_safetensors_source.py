"""Safetensors checkpoints: what the `safetensors` package writes is read, and what is damaged is refused by name."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jackfield.hookspecs import LoaderContext, ModelSourceError, Shard, Weight
from jackfield_models_loaders import safetensors as plugin
from jackfield_models_loaders.safetensors_header import SafetensorsFile
from jackfield_models_loaders.safetensors_source import SafetensorsSource

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def as_tensor(weight: Weight) -> torch.Tensor:
    return torch.from_numpy(weight.parts["data"]).view(DTYPES[weight.dtype]).reshape(weight.shape)


def weights(path: Path) -> dict[str, Weight]:
    found = list(SafetensorsSource(path).weights(Shard()))
    assert len({weight.name for weight in found}) == len(found)
    return {weight.name: weight for weight in found}


def refusal(path: Path, names: Path | None = None) -> str:
    with pytest.raises(ModelSourceError) as caught:
        SafetensorsSource(path).weights(Shard())
    assert str(names or path) in str(caught.value)
    return str(caught.value)


@pytest.fixture
def model() -> transformers.LlamaForCausalLM:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=False,
    )
    return transformers.LlamaForCausalLM(config)


@pytest.mark.parametrize("dtype", DTYPES)
def test_b76_a_single_file_is_read_as_it_was_written(
    tmp_path: Path, model: transformers.LlamaForCausalLM, dtype: str
) -> None:
    torch.nn.Module.to(model, DTYPES[dtype])
    model.save_pretrained(tmp_path)
    ours, theirs = weights(tmp_path), model.state_dict()
    assert set(ours) == set(theirs)
    for name, weight in ours.items():
        assert (weight.encoding, weight.dtype, weight.shape) == ("plain", dtype, tuple(theirs[name].shape))
        assert weight.parts["data"].ndim == 1
        assert not weight.parts["data"].flags.owndata
        torch.testing.assert_close(as_tensor(weight), theirs[name], rtol=0, atol=0)
    assert list(ours) == list(SafetensorsFile(tmp_path / "model.safetensors").tensors)
    by_file = SafetensorsSource(tmp_path / "model.safetensors")
    assert [weight.name for weight in by_file.weights(Shard())] == list(ours)


def test_b76_d_a_sharded_copy_is_the_same(tmp_path: Path, model: transformers.LlamaForCausalLM) -> None:
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) > 2
    theirs = model.state_dict()
    for path in (tmp_path, tmp_path / "model.safetensors.index.json"):
        ours = weights(path)
        assert set(ours) == set(theirs)
        for name, weight in ours.items():
            torch.testing.assert_close(as_tensor(weight), theirs[name], rtol=0, atol=0)


def test_config_carries_generation_settings_and_overrides(tmp_path: Path, model: transformers.LlamaForCausalLM) -> None:
    model.generation_config.temperature = 0.5
    model.generation_config.do_sample = True
    model.save_pretrained(tmp_path)
    context = LoaderContext(
        kind="loader",
        name="safetensors",
        instance="safetensors",
        path=tmp_path,
        overrides={"num_hidden_layers": 1, "rope_parameters": {"rope_theta": 3.0}},
    )
    config = plugin.jackfield_model_source(context).config()
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["generation_config"]["temperature"] == 0.5
    assert config["num_hidden_layers"] == 1
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": 3.0}


def test_config_problems_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for content, says in ((None, "is missing"), ("{", "not valid JSON"), ("[1]", "not an object"), ("\xff", "JSON")):
        if content is not None:
            path.write_bytes(content.encode("latin-1"))
        with pytest.raises(ModelSourceError, match=says) as caught:
            SafetensorsSource(tmp_path).config()
        assert str(path) in str(caught.value)
    with pytest.raises(ModelSourceError, match="does not exist"):
        SafetensorsSource(tmp_path / "absent")


def stored(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def described(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"{}", "only 2 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"\x80\x02}q\x00(X\x05\x00\x00", "not a safetensors file"),
        (struct.pack("<Q", 2**63) + b"{}", "not a safetensors file"),
        (struct.pack("<Q", 99) + b"{}", "ends within its header"),
        (stored(b"{"), "not valid JSON"),
        (stored(b'{"a":' * 100000), "not valid JSON"),
        (stored(b'{"a":1,"a":2}'), "twice"),
        (stored({"a": 1}), "not described"),
        (stored({"a": described(dtype="F99")}), "unknown dtype 'F99'"),
        (stored({"a": described(dtype=["F32"])}), "unknown dtype"),  # type: ignore[arg-type]
        (stored({"a": described(shape=[-1])}), "malformed"),
        (stored({"a": described(shape=[1.5])}), "malformed"),
        (stored({"a": described(shape=[True, 2])}), "malformed"),
        (stored({"a": described(shape="2")}), "malformed"),
        (stored({"a": described(offsets=[0, 8, 9])}), "malformed"),
        (stored({"a": described(shape=[2**62, 2**62])}), "impossible shape"),
        (stored({"a": described(offsets=[0, 7])}, bytes(8)), "cannot have 7 bytes"),
        (stored({"a": described(offsets=[8, 0])}, bytes(8)), "cannot have -8 bytes"),
        (stored({"a": described(dtype="F4", shape=[3], offsets=[0, 2])}, bytes(2)), "cannot have 2 bytes"),
        (stored({"a": described()}, bytes(7)), "ends within tensor 'a': it should have"),
        (stored({"a": described(), "b": described(offsets=(8, 16))}, bytes(9)), "ends within tensor 'b'"),
        (stored({"a": described()}, bytes(9)), "1 bytes that belong to no tensor"),
        (stored({"a": described(offsets=[4, 12])}, bytes(12)), "hole"),
        (stored({"a": described(), "b": described(offsets=[4, 12])}, bytes(12)), "overlaps"),
        (stored({"a": described(), "b": described()}, bytes(16)), "overlaps"),
        (stored({"a": described("I64", (1,))}, bytes(8)), "dtype I64"),
        (stored({"a": described("F8_E4M3", (8,))}, bytes(8)), "not quantised"),
    ],
)
def test_malformed_files_are_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    assert says in refusal(path)


def test_odd_but_valid_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    content = {
        "__metadata__": {"format": "pt"},
        "e": described(shape=[0], offsets=[8, 8]),
        "s": described(shape=[1, 2]),
    }
    path.write_bytes(stored(content, np.arange(2, dtype="<f4").tobytes()))
    found = weights(path)
    assert found["e"].shape == (0,)
    assert found["e"].parts["data"].size == 0
    assert as_tensor(found["s"]).tolist() == [[0.0, 1.0]]
    safetensors.torch.save_file({"scalar": torch.tensor(2.0)}, path)
    assert as_tensor(weights(path)["scalar"]).item() == 2.0


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_files_never_do_worse_than_a_refusal(tmp_path: Path, data: st.DataObject) -> None:
    tensors = {"a": torch.zeros(3, 4), "b": torch.zeros(5, dtype=torch.bfloat16)}
    content = bytearray(safetensors.torch.save(tensors))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        patch = data.draw(st.binary(min_size=1, max_size=8) | st.sampled_from([b"9" * 20, b"[", b'"', b"-1", b"1e9"]))
        content[at : at + len(patch)] = patch
    content = content[: data.draw(st.integers(1, len(content)) | st.just(len(content)))]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    refused = ""
    try:
        found = list(SafetensorsSource(path).weights(Shard()))
    except ModelSourceError as error:
        refused = str(error)
    else:
        assert sum(weight.parts["data"].nbytes for weight in found) < len(content)
    assert not refused or str(path) in refused


def write_shards(directory: Path, weight_map: Any, *, index: str = "model.safetensors.index.json") -> None:
    for number, name in enumerate("ab", start=1):
        file = directory / f"model-0000{number}-of-00002.safetensors"
        safetensors.torch.save_file({name: torch.zeros(2), f"{name}2": torch.ones(2)}, file)
    (directory / index).write_text(json.dumps({"weight_map": weight_map}))


ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def test_all_files_of_the_weights_are_named_for_what_is_kept_of_them(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "model.safetensors").write_bytes(b"")
    assert SafetensorsSource(tmp_path / "one").files() == (tmp_path / "one" / "model.safetensors",)
    write_shards(tmp_path, {"a": "b.safetensors", "b": "a.safetensors", "c": "b.safetensors"})
    names = ("model.safetensors.index.json", "a.safetensors", "b.safetensors")
    assert SafetensorsSource(tmp_path).files() == tuple(tmp_path / name for name in names)


@pytest.mark.parametrize("name", ["../x.safetensors", "/x.safetensors", "..", "sub/x.safetensors", "a\\b", "", 5, None])
def test_an_index_cannot_point_out_of_its_directory(tmp_path: Path, name: object) -> None:
    write_shards(tmp_path, {"a": ONE, "b": name})
    assert "not the name of a file beside it" in refusal(tmp_path, tmp_path / "model.safetensors.index.json")


def test_shards_and_index_must_belong_together(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    write_shards(tmp_path, {"a": ONE, "b": TWO})
    assert set(weights(tmp_path)) == {"a", "a2", "b", "b2"}  # the model code says what it makes of a2 and b2
    write_shards(tmp_path, {"a": ONE, "c": TWO})
    assert "'c' lies in" in refusal(tmp_path, index)
    malformed: tuple[Any, ...] = ({}, [], None)
    for bad in malformed:
        write_shards(tmp_path, bad)
        assert "no weight_map" in refusal(tmp_path, index)
    write_shards(tmp_path, {"a": ONE, "b": TWO})
    safetensors.torch.save_file({"b": torch.zeros(1), "a": torch.zeros(1)}, tmp_path / TWO)
    assert "and again in" in refusal(tmp_path, index)
    (tmp_path / TWO).write_bytes((tmp_path / ONE).read_bytes()[:-1])
    assert "truncated" in refusal(tmp_path, tmp_path / TWO)
    (tmp_path / TWO).unlink()
    says = refusal(tmp_path, tmp_path / TWO)
    assert "is missing" in says
    assert index.name in says
    assert "one shard of several" in refusal(tmp_path / ONE)


def test_which_file_of_a_directory_is_taken(tmp_path: Path) -> None:
    assert "holds nothing" in refusal(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    says = refusal(tmp_path)
    assert "pytorch_model.bin" in says
    assert "must be converted" in says
    safetensors.torch.save_file({"o": torch.zeros(1)}, tmp_path / "other.safetensors")
    assert set(weights(tmp_path)) == {"o"}
    safetensors.torch.save_file({"p": torch.zeros(1)}, tmp_path / "second.safetensors")
    assert "no index" in refusal(tmp_path)
    write_shards(tmp_path, {"a": ONE, "b": TWO}, index="own.safetensors.index.json")
    assert set(weights(tmp_path)) == {"a", "a2", "b", "b2"}
    write_shards(tmp_path, {"a": ONE}, index="extra.safetensors.index.json")
    assert "holds 2 indexes" in refusal(tmp_path)
    safetensors.torch.save_file({"m": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert set(weights(tmp_path)) == {"m"}


def test_links_as_the_hub_s_cache_makes_them_are_followed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots"
    blobs.mkdir()
    snapshot.mkdir()
    write_shards(blobs, {"a": ONE, "b": TWO})
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(Path("../blobs") / file.name)
    assert set(weights(snapshot)) == {"a", "a2", "b", "b2"}
