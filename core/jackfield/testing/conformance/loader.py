"""The conformance suite of kind `loader`: small checkpoints whose every byte is known, whole, cut off and spoilt. No torch."""

from __future__ import annotations

import copy
import gc
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from jackfield.hookspecs import ModelSource, ModelSourceError, Shard, TokenizerFiles, Weight
from jackfield.stack.errors import PluginLoadError
from jackfield.testing import checkpoints
from jackfield.testing.checkpoints import Checkpoint
from jackfield.testing.conformance.suite import Conformance

Writer = Callable[[Path], Checkpoint]

_CHILD = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
sys.modules["torch"] = None  # importing it raises ImportError
from pathlib import Path
from jackfield.hookspecs import Shard
from jackfield.stack.discovery.scan import discover
from jackfield.stack.loading.load import INLINE, load_stack
from jackfield.stack.resolved import ResolvedStack
from jackfield.stack.selection.single import select_one
name, options, files, paths = json.loads(sys.argv[2])
chosen = select_one(discover(files=[Path(file) for file in files]), "loader", name, options)
stack = load_stack(ResolvedStack(plugins=(chosen,)), INLINE)
for path in paths:
    source = stack.make("loader", path=Path(path))
    source.config(), source.tokenizer(), list(source.weights(Shard()))
"""


class LoaderConformance(Conformance):
    """For the file patterns *.safetensors, *.safetensors.index.json and *.gguf the suite writes checkpoints itself; for
    another format override `checkpoint`."""

    kind = "loader"

    def checkpoint(self, folder: Path) -> Checkpoint | None:
        """Write a small checkpoint of the format into the folder, and say what stands in it. None: there is no other format
        than the suite's own."""
        return None

    # --- what the checks are made of ---

    def writers(self) -> dict[str, Writer]:
        """Name of the folder -> what writes there."""
        found: dict[str, Writer] = {}
        if type(self).checkpoint is not LoaderConformance.checkpoint:
            found["own"] = lambda folder: self.checkpoint(folder) or self.cannot_run("`checkpoint` gave none")
        known: dict[str, tuple[str, Writer]] = {
            "single": ("model.safetensors", checkpoints.write_safetensors),
            "half": ("model.safetensors", lambda folder: checkpoints.write_safetensors(folder, "float16")),
            "sharded": ("model.safetensors.index.json", checkpoints.write_sharded_safetensors),
            "gguf": ("model.gguf", checkpoints.write_gguf),
        }
        patterns = self.manifest().files
        for name, (file, writer) in known.items():
            if any(fnmatch(file, pattern) for pattern in patterns):
                found[name] = writer
        if "gguf" in found and importlib.util.find_spec("gguf") is None:
            self.cannot_run("the package gguf, which writes the checkpoint, cannot be imported: pip install gguf")
        if not found and patterns:
            self.cannot_run(f"the suite writes no checkpoint of {', '.join(patterns)}: override `checkpoint`")
        return found or {"described": _described}

    def written(self, folder: Path) -> dict[str, Checkpoint]:
        found = {}
        for name, writer in self.writers().items():
            (folder / name).mkdir()
            found[name] = writer(folder / name)
        return found

    def source(self, path: Path, **overrides: Any) -> ModelSource:
        """Opened by the plugin's hook. Raises ModelSourceError, which the core tells as a PluginLoadError."""
        try:
            made: ModelSource = self.make(path=path, overrides=overrides)
        except PluginLoadError as error:
            if isinstance(error.__cause__, ModelSourceError):
                raise error.__cause__ from error
            raise
        return made

    def weights(self, path: Path, shard: Shard | None = None) -> dict[str, Weight]:
        given = list(self.source(path).weights(shard or Shard()))
        assert len({one.name for one in given}) == len(given), f"{path.name}: a tensor is given twice"
        return {one.name: one for one in given}

    def refusal(self, path: Path, what: str) -> str:
        """The text with which it refuses the weights; by `weights` itself at the latest, before anything is iterated."""
        try:
            self.source(path).weights(Shard())
        except ModelSourceError as error:
            return str(error)
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__} instead of ModelSourceError: {error}") from error
        raise AssertionError(f"{what}: accepted")

    # --- config and tokenizer ---

    def test_config(self, tmp_path: Path) -> None:
        """The config in Hugging Face's shape with its architectures, and a new dict each time."""
        for name, given in self.written(tmp_path).items():
            source = self.source(given.path)
            config = source.config()
            assert config.get("architectures"), f"{name}: the config has no architectures"
            wrong = {key: config.get(key) for key, value in given.config.items() if config.get(key) != value}
            assert not wrong, f"{name}: the checkpoint says otherwise than {wrong}"
            before = copy.deepcopy(config)
            config.clear()
            assert source.config() == before, f"{name}: a caller's change of the config reached the next one"

    def test_overrides(self, tmp_path: Path) -> None:
        """Overrides lie over the config, objects merged entry by entry, and the rest stays."""
        for name, given in self.written(tmp_path).items():
            plain = self.source(given.path).config()
            over = {"num_hidden_layers": 1, "no_such_entry": {"a": 1}, "rope_parameters": {"rope_theta": 3.0}}
            config = self.source(given.path, **over).config()
            rope = {**plain.get("rope_parameters", {}), "rope_theta": 3.0}
            assert config == {**plain, **over, "rope_parameters": rope}, f"{name}: {config}"

    def test_tokenizer(self, tmp_path: Path) -> None:
        """tokenizer.json as the tokenizers library reads it, the special tokens and the chat template."""
        for name, given in self.written(tmp_path).items():
            files = self.source(given.path).tokenizer()
            assert isinstance(files, TokenizerFiles)
            document = json.loads(files.tokenizer_json)
            assert "model" in document, f"{name}: not a tokenizer.json"
            if name != "own":
                assert files.special_tokens.get("eos_token") == "</s>", f"{name}: {dict(files.special_tokens)}"
                assert files.chat_template == checkpoints.TEMPLATE, f"{name}: {files.chat_template!r}"

    def test_no_torch(self, tmp_path: Path) -> None:
        """Config, tokenizer and weights are read in a process in which torch cannot be imported."""
        paths = [str(given.path) for given in self.written(tmp_path).values()]
        order = json.dumps([self.plugin, dict(self.options), [str(self.file)] if self.file else [], paths])
        command = [sys.executable, "-c", _CHILD, json.dumps([entry for entry in sys.path if entry]), order]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr.strip().splitlines()[-1]

    # --- weights ---

    def test_weights(self, tmp_path: Path) -> None:
        """Every tensor once, under its Hugging Face name, with dtype, shape and bytes as they were written."""
        for name, given in self.written(tmp_path).items():
            found = self.weights(given.path)
            assert found, f"{name}: no tensors"
            for one in found.values():
                data = one.parts["data"]
                assert data.dtype == np.uint8, f"{one.name}: parts['data'] is {data.dtype}, not uint8"
                assert data.ndim == (1 if one.encoding == "plain" else 2), f"{one.name}: {data.ndim} dimensions"
            if given.tensors is None:
                continue
            assert set(found) == set(given.tensors), f"{name}: {set(found) ^ set(given.tensors)} differ"
            for key, stored in given.tensors.items():
                one = found[key]
                assert (one.encoding, one.dtype, tuple(one.shape)) == ("plain", stored.dtype, stored.shape), key
                rows = np.asarray(one.parts["data"]).reshape(stored.shape[0], -1)
                same = _sorted(rows) == _sorted(stored.rows) if given.rows_move else np.array_equal(rows, stored.rows)
                assert same, f"{name}: {key} does not hold the bytes that were written"

    def test_shards(self, tmp_path: Path) -> None:
        """A rank gets every tensor whole: the layers cut out its part."""
        for name, given in self.written(tmp_path).items():
            whole = self.weights(given.path)
            for rank in range(2):
                part = self.weights(given.path, Shard(tp_rank=rank, tp_size=2))
                assert list(part) == list(whole), f"{name}: rank {rank} gets other tensors"
                for key, one in part.items():
                    same = one.shape == whole[key].shape and np.array_equal(one.parts["data"], whole[key].parts["data"])
                    assert same, f"{name}: rank {rank} gets a part of {key}"

    def test_weights_outlive_their_source(self, tmp_path: Path) -> None:
        """What was given stays readable when the source and its iterator are gone."""
        for name, given in self.written(tmp_path).items():
            kept = [(one, one.parts["data"].copy()) for one in self.source(given.path).weights(Shard())]
            gc.collect()
            for one, data in kept:
                assert np.array_equal(one.parts["data"], data), f"{name}: {one.name} changed after it was given"

    # --- what is wrong with a checkpoint ---

    def test_missing(self, tmp_path: Path) -> None:
        """A path or file that is not there is refused by its name."""
        for name, given in self.written(tmp_path).items():
            absent = given.path.with_name("absent" + given.path.suffix)
            told = self.refusal(absent, f"{name}: no such path")
            assert str(absent) in told, f"{name}: the refusal does not name {absent}: {told}"
            if len(given.files) > 1:
                given.files[1].unlink()
                told = self.refusal(given.path, f"{name}: one file of several is gone")
                assert given.files[1].name in told, f"{name}: the refusal does not name the file: {told}"

    def test_truncated(self, tmp_path: Path) -> None:
        """A file that was cut off anywhere is refused by its name, and by `weights` itself, before the first tensor."""
        tried = 0
        for name, given in self.written(tmp_path).items():
            for file in given.files:
                whole = file.read_bytes()
                for length in (0, 3, 9, 100, len(whole) // 2, len(whole) - 1):
                    file.write_bytes(whole[:length])
                    told = self.refusal(given.path, f"{name}: {file.name} cut off after {length} of {len(whole)} bytes")
                    assert file.name in told, f"{name}: the refusal does not name {file.name}: {told}"
                    tried += 1
                file.write_bytes(whole)
        if not tried:
            self.not_claimed("it reads no file of weights")

    def test_spoilt(self, tmp_path: Path) -> None:
        """Wrong bytes at the front of a file are a ModelSourceError that names it, or do no harm; never another error."""
        tried = 0
        for name, given in self.written(tmp_path).items():
            for file in given.files[:1]:
                whole = file.read_bytes()
                random = np.random.default_rng(0)
                spoilt = [b"\xff" * 64 + whole[64:], b"\0" * 64 + whole[64:]]
                for _ in range(40):
                    at = int(random.integers(0, 400))
                    spoilt.append(whole[:at] + bytes([int(random.integers(0, 256))]) + whole[at + 1 :])
                for number, content in enumerate(spoilt):
                    file.write_bytes(content)
                    try:
                        source = self.source(given.path)
                        source.config()
                        list(source.weights(Shard()))
                    except ModelSourceError as error:
                        told = str(error)
                    except Exception as error:
                        kind = type(error).__name__
                        raise AssertionError(f"{name}: {kind} instead of ModelSourceError: {error}") from error
                    else:
                        told = file.name
                        assert number > 1, f"{name}: {file.name} begins with 64 wrong bytes and was accepted"
                    assert file.name in told, f"{name}: the refusal does not name {file.name}: {told}"
                    tried += 1
                file.write_bytes(whole)
        if not tried:
            self.not_claimed("it reads no file of weights")


def _described(folder: Path) -> Checkpoint:
    """For a loader that lists no files: what stands beside weights."""
    checkpoints.write_text_side(folder)
    config: Mapping[str, Any] = checkpoints.CONFIG
    return Checkpoint(path=folder, config=config)


def _sorted(rows: Any) -> list[bytes]:
    return sorted(row.tobytes() for row in rows)
