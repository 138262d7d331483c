"""The GGUF header reader: everything true is read, and nothing false gets past it or costs more than an error."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jackfield.hookspecs import ModelSourceError, Shard
from jackfield_models_loaders.ggml_types import GGML_TYPES
from jackfield_models_loaders.gguf_header import GgufHeader, StringArray
from jackfield_models_loaders.gguf_source import GgufSource

Maker = Callable[..., Path]


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(key: str, kind: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + payload


def tensor(name: str, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def file_bytes(
    entries: tuple[bytes, ...] = (), tensors: tuple[bytes, ...] = (), data: bytes = b"", version: int = 3
) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries)) + b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + data


def refused(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(ModelSourceError) as caught:
        GgufHeader(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_types_are_ggml_s() -> None:
    theirs = {int(kind): (kind.name.lower(), *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    ours = {number: (kind.name, kind.block, kind.nbytes) for number, kind in GGML_TYPES.items()}
    assert ours == {number: theirs[number] for number in ours}
    assert len(ours) >= 30


def test_reads_what_the_gguf_package_reads(make_gguf: Maker) -> None:
    path = make_gguf(bias=True, tied=False)
    header, reader = GgufHeader(path), gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    ours: dict[str, Any] = {}
    for key, value in header.metadata.items():
        if isinstance(value, StringArray):
            ours[key] = header.strings(value)
        else:
            ours[key] = value.tolist() if isinstance(value, np.ndarray) else value
    assert ours == fields
    theirs = {t.name: t for t in reader.tensors}
    assert list(header.tensors) == list(theirs)
    for name, found in header.tensors.items():
        assert found.shape == tuple(int(size) for size in theirs[name].shape[::-1])
        assert found.type.number == int(theirs[name].tensor_type)
        np.testing.assert_array_equal(header.data(found).reshape(-1), theirs[name].data.view(np.uint8).reshape(-1))


def test_every_scalar_and_array_type(tmp_path: Path) -> None:
    formats = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    entries = []
    for kind, code in formats.items():
        entries.append(entry(f"one.{kind}", kind, struct.pack("<" + code, 1)))
        entries.append(entry(f"many.{kind}", 9, struct.pack("<IQ", kind, 3) + struct.pack("<3" + code, 1, 0, 1)))
        entries.append(entry(f"none.{kind}", 9, struct.pack("<IQ", kind, 0)))
    entries.append(entry("texts", 9, struct.pack("<IQ", 8, 2) + text("ä") + text("")))
    path = tmp_path / "types.gguf"
    for version in (2, 3):
        path.write_bytes(file_bytes(tuple(entries), version=version))
        header = GgufHeader(path)
        for kind in formats:
            assert header.metadata[f"one.{kind}"] == 1
            many, none = header.metadata[f"many.{kind}"], header.metadata[f"none.{kind}"]
            assert isinstance(many, np.ndarray)
            assert isinstance(none, np.ndarray)
            assert (many.tolist(), none.tolist()) == ([1, 0, 1], [])
        assert isinstance(header.metadata["one.7"], bool)
        texts = header.metadata["texts"]
        assert isinstance(texts, StringArray)
        assert header.strings(texts) == ["ä", ""]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"GGUF", "ends within"),
        (b"\x80\x04K\x01.", "not a GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63), "ends within"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**64 - 1, 0), "ends within"),
        (file_bytes((entry("a", 4, struct.pack("<I", 1)),) * 2), "twice"),
        (file_bytes((entry("a", 77, b""),)), "unknown type 77"),
        (file_bytes((entry("a", 9, struct.pack("<IQ", 9, 1)),)), "unknown type 9"),
        (file_bytes((entry("a", 9, struct.pack("<IQ", 12, 2**62)),)), "ends within"),
        (file_bytes((entry("a", 9, struct.pack("<IQ", 8, 2**62)),)), "more than the file can hold"),
        (file_bytes((entry("a", 9, struct.pack("<IQ", 8, 2) + text("b") + struct.pack("<Q", 2**64 - 1)),)), "ends"),
        (file_bytes((text("a" * 70000),)), "70000 bytes long"),
        (file_bytes((entry("a", 8, struct.pack("<Q", 2) + b"\xff\xff"),)), "UTF-8"),
        (file_bytes((entry("general.alignment", 4, struct.pack("<I", 24)),)), "power of two"),
        (file_bytes((entry("general.alignment", 4, struct.pack("<I", 0)),)), "power of two"),
        (file_bytes((), (tensor("t", (), 0, 0),)), "0 dimensions"),
        (file_bytes((), (tensor("t", (1, 1, 1, 1, 1), 0, 0),)), "5 dimensions"),
        (file_bytes((), (tensor("t", (0,), 0, 0),)), "impossible shape"),
        (file_bytes((), (tensor("t", (2**40, 2**40), 0, 0),)), "impossible shape"),
        (file_bytes((), (tensor("t", (8,), 99, 0),)), "unknown type number 99"),
        (file_bytes((), (tensor("t", (33,), 8, 0),), bytes(99)), "blocks of 32"),
        (file_bytes((), (tensor("t", (8,), 0, 16),), bytes(99)), "multiple of 32"),
        (file_bytes((), (tensor("t", (8,), 0, 0),), bytes(31)), "should end at byte"),
        (file_bytes((), (tensor("t", (8,), 0, 2**62),), bytes(32)), "should end at byte"),
        (file_bytes((), (tensor("t", (8,), 0, 0), tensor("t", (8,), 0, 32)), bytes(64)), "twice"),
        (file_bytes((), (tensor("t", (16,), 0, 0), tensor("u", (8,), 0, 32)), bytes(96)), "overlap"),
    ],
)
def test_malformed_files_are_refused(tmp_path: Path, content: bytes, says: str) -> None:
    assert says in refused(tmp_path / "bad.gguf", content)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.gguf", tmp_path):
        with pytest.raises(ModelSourceError, match=path.name):
            GgufHeader(path)


def use_everything(path: Path) -> None:
    """Whatever a server would do with the file."""
    source = GgufSource(path)
    source.config()
    tokenizers.Tokenizer.from_str(source.tokenizer().tokenizer_json.decode()).encode("hello 12")
    for weight in source.weights(Shard()):
        assert weight.parts["data"].nbytes > 0


def test_a_file_cut_off_anywhere_is_refused(make_gguf: Maker, tmp_path: Path) -> None:
    content = make_gguf().read_bytes()
    used = GgufHeader(tmp_path / "tiny.gguf")
    header_end = min(found.offset for found in used.tensors.values())
    cut = tmp_path / "cut.gguf"
    for length in (*range(0, header_end, 37), header_end, (header_end + len(content)) // 2, len(content) - 40):
        refused(cut, content[:length])


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_headers_never_do_worse_than_a_refusal(make_gguf: Maker, tmp_path: Path, data: st.DataObject) -> None:
    original = tmp_path / "tiny.gguf"
    if not original.exists():
        make_gguf()
    content = bytearray(original.read_bytes())
    # the tensor table ends before the first tensor's data; the vocabulary is in front of it
    end = min(found.offset for found in GgufHeader(original).tensors.values())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, end - 1))
        patch = data.draw(
            st.one_of(
                st.binary(min_size=1, max_size=8),
                st.sampled_from([struct.pack("<Q", value) for value in (0, 1, 2**31, 2**32, 2**63, 2**64 - 1)]),
            )
        )
        content[at : at + len(patch)] = patch
    mutated = tmp_path / "mutated.gguf"
    mutated.write_bytes(content)
    refusal = ""
    tracemalloc.start()
    try:
        use_everything(mutated)
    except ModelSourceError as error:
        refusal = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert not refusal or str(mutated) in refusal
    assert peak < 50 * len(content)
