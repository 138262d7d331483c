"""Packed weights on disk: what a second start takes from the first, and everything that can be wrong with what it finds."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import DenseWeight, Shard, WeightCache, WorkerContext
from jackfield.model_executor.loading import load_model
from jackfield.model_executor.weight_cache import directory as directory_module
from jackfield.model_executor.weight_cache import kept as kept_module
from jackfield.model_executor.weight_cache.directory import CacheDirectory
from jackfield.model_executor.weight_cache.kept import KeptWeights
from jackfield.model_executor.weight_cache.packed_file import ALIGNMENT
from jackfield_models_loaders.safetensors_source import SafetensorsSource
from jackfield_ops_torch.ops import TorchOps

MIB = 2**20
LINEARS = 3 * 4 + 1  # qkv, o, gate_up and down of three layers, and the head


class ExportingOps(TorchOps):
    """Counts what it packs and what it gets back."""

    def __init__(self, tag: str = "a", *, table: bool = True) -> None:
        self.tag = tag
        self.table = table
        self.packed = self.restored = 0

    def pack(self, weight: DenseWeight) -> torch.Tensor:
        self.packed += 1
        return super().pack(weight)

    def looks_up(self, packed: Any) -> bool:
        return self.table

    def packing(self) -> str:
        return self.tag

    def export(self, packed: torch.Tensor) -> tuple[Mapping[str, Any], NDArray[np.uint8]]:
        return {"shape": list(packed.shape)}, packed.view(torch.uint8).numpy().reshape(-1)

    def restore(self, header: Mapping[str, Any], data: NDArray[np.uint8]) -> torch.Tensor:
        assert not data.flags.writeable
        self.restored += 1
        return torch.from_numpy(data.copy()).view(torch.float32).view(header["shape"])


class NoReading(SafetensorsSource):
    """Its matrices have no bytes: whoever looks at them fails. read: how the names begin of those that have."""

    read = "none"

    def weights(self, shard: Shard) -> Any:
        for weight in super().weights(shard):
            has = len(weight.shape) < 2 or weight.name.startswith(self.read)
            yield weight if has else replace(weight, parts={})


Load = Callable[..., Any]


@pytest.fixture
def load(
    llama: Any, worker_context: Callable[..., WorkerContext], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Load:
    """load(ops, ...): the model, when the cache is written."""
    monkeypatch.setattr(kept_module, "LEAST_BYTES", 0)
    path = tmp_path / "model"
    shutil.copytree(llama.path, path)

    def loaded(
        ops: TorchOps,
        *,
        source: Any = None,
        max_bytes: int = MIB * 64,
        owner: str = "me",
        tied: bool = False,
        **more: Any,
    ) -> Any:
        if tied:
            config = json.loads((path / "config.json").read_text())
            (path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
        cache = WeightCache(directory=tmp_path / "cache", max_bytes=max_bytes, owner=owner, digest=sha256)
        stack = worker_context(llama).stack
        assert stack is not None
        source = source or SafetensorsSource(path)
        stack = replace(stack, source=source, config=source.config(), weight_cache=cache, **more)
        model = load_model(
            stack, shard=Shard(), ops=ops, device=torch.device("cpu"), dtype=torch.float32, max_context=64
        )
        for thread in [one for one in threading.enumerate() if one.name == "weight-cache"]:
            thread.join()
        return model

    return loaded


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def weights(model: Any) -> list[torch.Tensor]:
    found = [getattr(block, name) for layer in model.layers for block, name in _linears(layer)]
    return [*found, model.head.packed]


def _linears(layer: Any) -> list[tuple[Any, str]]:
    return [(layer.pre, "qkv"), (layer.post, "o"), (layer.post, "gate_up"), (layer.post, "down")]


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("*.packed"))


def test_a_second_start_packs_nothing_reads_no_matrix_and_has_the_same_weights(load: Load, tmp_path: Path) -> None:
    first, second = ExportingOps(), ExportingOps()
    one = load(first)
    assert (first.packed, first.restored) == (LINEARS, 0)
    assert len(files(tmp_path)) == 1
    source = NoReading(tmp_path / "model")
    source.read = "model.embed_tokens"
    two = load(second, source=source)
    assert (second.packed, second.restored) == (0, LINEARS)
    assert all(torch.equal(a, b) for a, b in zip(weights(one), weights(two), strict=True))


@pytest.mark.parametrize("table", [True, False])
def test_a_tied_head_is_kept_once_where_rows_can_be_looked_up_in_it(load: Load, tmp_path: Path, table: bool) -> None:
    _without_head(tmp_path / "model")
    ops = ExportingOps(table=table)
    model = load(ops, tied=True)
    assert (model.embed.table is model.head.packed) == table
    assert torch.equal(model.embed.table, model.head.packed)
    again = load(ExportingOps(table=table), source=None if not table else NoReading(tmp_path / "model"))
    assert (again.embed.table is again.head.packed) == table
    assert torch.equal(again.embed.table, model.head.packed)


def _without_head(path: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(path / "model.safetensors")
    tensors.pop("lm_head.weight")
    save_file(tensors, path / "model.safetensors")


def test_another_form_owner_or_content_is_packed_anew(load: Load, tmp_path: Path) -> None:
    load(ExportingOps())
    others: list[tuple[ExportingOps, dict[str, Any]]] = [
        (ExportingOps("b"), {}),
        (ExportingOps(), {"owner": "you"}),
        (ExportingOps(), {"quantization": "w8a8_int8"}),
        (ExportingOps(), {"ops_encodings": frozenset({"plain", "q8_0"})}),
        (ExportingOps(), {"packed_only": True}),
    ]
    for ops, more in others:
        load(ops, **more)
        assert (ops.packed, ops.restored) == (LINEARS, 0), more
    file = tmp_path / "model" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    ops = ExportingOps()
    load(ops)
    assert (ops.packed, ops.restored) == (LINEARS, 0)
    assert len(files(tmp_path)) == len(others) + 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[:40],
        lambda content: content + b"\0",
        lambda content: bytes(64) + content[64:],
        lambda content: content[:-3] + b"x" + content[-2:],
        lambda content: b"",
    ],
    ids=["truncated", "stump", "longer", "no prefix", "table", "empty"],
)
def test_a_damaged_file_is_noticed_told_and_made_again(
    load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[bytes], bytes]
) -> None:
    load(ExportingOps())
    (file,) = files(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    ops = ExportingOps()
    with caplog.at_level(logging.WARNING):
        load(ops)
    assert (ops.packed, ops.restored) == (LINEARS, 0)
    assert f"{file} of packed weights is damaged and is made anew" in caplog.text
    assert file.read_bytes() == whole


def test_a_file_of_another_key_under_this_name_is_not_taken(load: Load, tmp_path: Path) -> None:
    load(ExportingOps("a"))
    (file,) = files(tmp_path)
    load(ExportingOps("b"))
    (other,) = set(files(tmp_path)) - {file}
    shutil.copy(other, file)
    ops = ExportingOps("a")
    load(ops)
    assert (ops.packed, ops.restored) == (LINEARS, 0)


def test_a_weight_that_cannot_be_restored_is_packed_and_the_file_is_whole_again(
    load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load(ExportingOps())

    class Choosy(ExportingOps):
        def restore(self, header: Mapping[str, Any], data: NDArray[np.uint8]) -> torch.Tensor:
            if self.restored == 2:
                self.restored += 1
                raise ValueError("no")
            return super().restore(header, data)

    ops = Choosy()
    load(ops)
    assert ops.packed == 1
    assert "cannot be restored and is packed anew" in caplog.text
    again = ExportingOps()
    load(again)
    assert (again.packed, again.restored) == (0, LINEARS)


def test_a_weight_whose_bytes_were_lost_is_packed_and_the_file_is_whole_again(
    load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = load(ExportingOps())
    (file,) = files(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[:ALIGNMENT] + bytes(ALIGNMENT) + whole[2 * ALIGNMENT :])  # the first section's beginning
    ops = ExportingOps()
    second = load(ops)
    assert 1 <= ops.packed < LINEARS
    assert "does not hold the bytes that were written" in caplog.text
    assert all(torch.equal(a, b) for a, b in zip(weights(first), weights(second), strict=True))
    again = ExportingOps()
    load(again)
    assert (again.packed, again.restored) == (0, LINEARS)


def test_a_full_disk_is_a_warning_and_leaves_nothing(
    load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jackfield.model_executor.weight_cache.packed_file import PackedWriter

    add = PackedWriter.add

    def full(self: PackedWriter, name: str, *given: Any) -> None:
        if "down" in name:
            raise OSError(28, "No space left on device")
        add(self, name, *given)

    monkeypatch.setattr(PackedWriter, "add", full)
    ops = ExportingOps()
    assert len(weights(load(ops))) == LINEARS == ops.packed
    assert caplog.text.count("No space left on device") == 1
    assert list((tmp_path / "cache").iterdir()) == []
    monkeypatch.setattr(PackedWriter, "add", add)
    monkeypatch.setattr(os, "fsync", lambda number: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    caplog.clear()
    load(ExportingOps())
    assert caplog.text.count("No space left on device") == 1
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_place_that_is_none_is_a_warning(load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cache").write_text("a file")
    ops = ExportingOps()
    load(ops)
    assert ops.packed == LINEARS
    assert "packed weights are not kept in" in caplog.text


def test_the_files_that_were_not_used_for_longest_make_room(load: Load, tmp_path: Path) -> None:
    load(ExportingOps("a"))
    (a,) = files(tmp_path)
    size = a.stat().st_size
    room = 2 * size + size // 2
    load(ExportingOps("b"), max_bytes=room)
    (b,) = set(files(tmp_path)) - {a}
    for file, age in ((a, 200), (b, 100)):
        os.utime(file, ns=(1, file.stat().st_mtime_ns - age * 10**9))
    load(ExportingOps("a"), max_bytes=room)  # used again, so the other is the oldest
    load(ExportingOps("c"), max_bytes=room)
    assert a in files(tmp_path)
    assert b not in files(tmp_path)
    assert len(files(tmp_path)) == 2


def test_what_is_larger_than_all_the_room_is_not_kept(load: Load, tmp_path: Path) -> None:
    load(ExportingOps(), max_bytes=1000)
    assert not (tmp_path / "cache").exists()


def test_a_packed_form_that_is_too_large_is_given_up(
    load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Twice(ExportingOps):
        def export(self, packed: torch.Tensor) -> tuple[Mapping[str, Any], NDArray[np.uint8]]:
            header, data = super().export(packed)
            return header, np.concatenate([data, data])

    size = (tmp_path / "model" / "model.safetensors").stat().st_size
    with caplog.at_level(logging.INFO):
        load(Twice(), max_bytes=size + 1)
    assert "--weight-cache-size" in caplog.text
    assert files(tmp_path) == []


def test_what_a_dead_writer_left_is_removed_and_a_living_ones_is_not(load: Load, tmp_path: Path) -> None:
    place = CacheDirectory(tmp_path / "cache", MIB)
    place.path.mkdir()
    (place.path / ".old.unfinished").write_bytes(b"left")
    living = place.begin({"some": "key"})
    load(ExportingOps())
    assert not (place.path / ".old.unfinished").exists()
    assert len(list(place.path.glob("*.unfinished"))) == 1
    living.writer.add("x", {}, np.arange(5000, dtype=np.uint8))
    living.finish()
    found = place.open({"some": "key"})
    assert found is not None
    assert found.section("x")[1].tolist() == np.arange(5000, dtype=np.uint8).tolist()
    assert living.writer.written > 2 * ALIGNMENT


def test_two_at_once_leave_one_whole_file_and_a_mapped_one_outlives_its_removal(tmp_path: Path) -> None:
    place, key = CacheDirectory(tmp_path, MIB), {"k": 1}
    one, two = place.begin(key), place.begin(key)
    for writer, value in ((one, 1), (two, 2)):
        writer.writer.add("x", {"v": value}, np.full(9, value, dtype=np.uint8))
    one.finish()
    mapped = place.open(key)
    two.finish()
    assert mapped is not None
    (file,) = tmp_path.glob("*.packed")
    newer = place.open(key)
    assert newer is not None
    file.unlink()
    assert (mapped.section("x")[0], newer.section("x")[0]) == ({"v": 1}, {"v": 2})
    assert mapped.section("x")[1].tolist() == [1] * 9
    assert list(mapped.names()) == ["x"]


def test_a_file_that_cannot_be_read_just_now_is_left_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place, key = CacheDirectory(tmp_path, MIB), {"k": 1}
    writer = place.begin(key)
    writer.writer.add("x", {}, np.ones(9, dtype=np.uint8))
    writer.finish()
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):

        def no_descriptor(*_: Any) -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        patched.setattr(directory_module, "PackedFile", no_descriptor)
        assert place.open(key) is None
    assert "cannot be read, so they are made anew: [Errno 24]" in caplog.text
    assert place.open(key) is not None


def test_operators_that_export_nothing_cost_no_reading(load: Load, tmp_path: Path) -> None:
    load(TorchOps())
    assert not (tmp_path / "cache").exists()


def test_small_models_are_packed_each_time(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "LEAST_BYTES", 8 * MIB)
    load(ExportingOps())
    assert not (tmp_path / "cache").exists()


def test_a_load_that_fails_keeps_nothing(load: Load, tmp_path: Path) -> None:
    class Failing(ExportingOps):
        def pack(self, weight: DenseWeight) -> torch.Tensor:
            if self.packed == 4:
                raise RuntimeError("no more")
            return super().pack(weight)

    with pytest.raises(RuntimeError, match="no more"):
        load(Failing())
    assert list((tmp_path / "cache").iterdir()) == []


def test_files_that_change_while_they_are_loaded_are_not_kept(
    load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Meddling(ExportingOps):
        def pack(self, weight: DenseWeight) -> torch.Tensor:
            os.utime(tmp_path / "model" / "model.safetensors", ns=(1, 1))
            return super().pack(weight)

    load(Meddling())
    assert "changed while they were loaded" in caplog.text
    assert files(tmp_path) == []


def test_a_missing_tensor_is_still_missed_when_all_is_kept(load: Load, tmp_path: Path) -> None:
    load(ExportingOps())

    class Lacking(SafetensorsSource):
        def weights(self, shard: Shard) -> Any:
            return (one for one in super().weights(shard) if not one.name.endswith("1.mlp.down_proj.weight"))

    with pytest.raises(Exception, match=r"model\.layers\.1\.mlp\.down_proj\.weight"):
        load(ExportingOps(), source=Lacking(tmp_path / "model"))


def test_a_header_that_is_no_json_keeps_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Odd(ExportingOps):
        def export(self, packed: torch.Tensor) -> tuple[Mapping[str, Any], NDArray[np.uint8]]:
            return {"dtype": packed.dtype}, super().export(packed)[1]

    kept = KeptWeights(CacheDirectory(tmp_path, MIB), {}, Odd())
    kept.put("x", torch.zeros(2))
    kept.finish()
    kept.wait()
    assert "not JSON serializable" in caplog.text
    assert list(tmp_path.iterdir()) == []
