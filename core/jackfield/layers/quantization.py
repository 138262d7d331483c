"""Packed weight encodings: block sizes, and decoders that are exact twins of ggml's definitions in float32.

Rows are whole blocks. A decoder takes uint8 [blocks, bytes a block] and gives float32 [blocks, elements a block]; it
runs on whatever device the bytes are on and knows nothing of names, shards or layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch


@dataclass(frozen=True)
class Encoding:
    """A packed form: `elements` weights lie in `nbytes` bytes."""

    elements: int
    nbytes: int
    decode: Callable[[torch.Tensor], torch.Tensor]


def _half(blocks: torch.Tensor, offset: int) -> torch.Tensor:
    """The float16 at a byte offset of every block, as float32 [blocks, 1]."""
    return blocks[:, offset : offset + 2].contiguous().view(torch.float16).float()


def _signed(codes: torch.Tensor) -> torch.Tensor:
    """Codes as int8, for arithmetic that may go below zero."""
    return codes.view(torch.int8) if codes.dtype == torch.uint8 else codes.to(torch.int8)


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """uint8 [..., n] -> [..., 2 n]: all low halves, then all high halves."""
    return torch.cat((packed & 0xF, packed >> 4), dim=-1)


def _bits(packed: torch.Tensor) -> torch.Tensor:
    """uint8 [blocks, 4] -> [blocks, 32], least significant bit first."""
    shifts = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed[:, :, None] >> shifts) & 1).flatten(1)


def _q8_0(blocks: torch.Tensor) -> torch.Tensor:
    return _signed(blocks[:, 2:].contiguous()).float() * _half(blocks, 0)


def _q4_0(blocks: torch.Tensor) -> torch.Tensor:
    return (_signed(_nibbles(blocks[:, 2:])) - 8).float() * _half(blocks, 0)


def _q4_1(blocks: torch.Tensor) -> torch.Tensor:
    return _nibbles(blocks[:, 4:]).float() * _half(blocks, 0) + _half(blocks, 2)


def _q5_0(blocks: torch.Tensor) -> torch.Tensor:
    codes = _nibbles(blocks[:, 6:]) | (_bits(blocks[:, 2:6]) << 4)
    return (_signed(codes) - 16).float() * _half(blocks, 0)


def _q5_1(blocks: torch.Tensor) -> torch.Tensor:
    codes = _nibbles(blocks[:, 8:]) | (_bits(blocks[:, 4:8]) << 4)
    return codes.float() * _half(blocks, 0) + _half(blocks, 2)


def _scales_and_mins(packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The eight 6-bit scales and minima of a q4_k / q5_k block: uint8 [blocks, 12] -> two of [blocks, 8, 1]."""
    low, middle, high = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = torch.cat((low & 0x3F, (high & 0x0F) | ((low >> 2) & 0x30)), dim=1)
    minima = torch.cat((middle & 0x3F, (high >> 4) | ((middle >> 2) & 0x30)), dim=1)
    return scales[:, :, None].float(), minima[:, :, None].float()


def _by_scale_and_min(blocks: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """d * scale * code - dmin * min for eight sub-blocks of 32; codes [blocks, 8, 32]."""
    scales, minima = _scales_and_mins(blocks[:, 4:16])
    scale = _half(blocks, 0)[:, :, None] * scales
    minimum = _half(blocks, 2)[:, :, None] * minima
    return (scale * codes.float() - minimum).flatten(1)


def _q4_k(blocks: torch.Tensor) -> torch.Tensor:
    return _by_scale_and_min(blocks, _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32))


def _q5_k(blocks: torch.Tensor) -> torch.Tensor:
    low = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    shifts = torch.arange(8, dtype=torch.uint8, device=blocks.device)[None, :, None]
    high = (blocks[:, None, 16:48] >> shifts) & 1
    return _by_scale_and_min(blocks, low | (high << 4))


def _q6_k(blocks: torch.Tensor) -> torch.Tensor:
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64))  # [blocks, 2, 128]: 64 low halves, 64 high halves
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8, device=blocks.device)[None, None, :, None]
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3  # [blocks, 2, 4, 32]
    codes = (low.reshape(-1, 16, 16)) | (high.reshape(-1, 16, 16) << 4)
    scales = _signed(blocks[:, 192:208].contiguous()).float()
    scale = (_half(blocks, 208) * scales)[:, :, None]
    return (scale * (_signed(codes) - 32).float()).flatten(1)


def _q2_k(blocks: torch.Tensor) -> torch.Tensor:
    packed, codes = blocks[:, :16], blocks[:, 16:80]
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8, device=blocks.device)[None, None, :, None]
    codes = ((codes.reshape(-1, 2, 1, 32) >> shifts) & 3).reshape(-1, 16, 16)
    scale = (_half(blocks, 80) * (packed & 0xF).float())[:, :, None]
    minimum = (_half(blocks, 82) * (packed >> 4).float())[:, :, None]
    return (scale * codes.float() - minimum).flatten(1)


def _q3_k(blocks: torch.Tensor) -> torch.Tensor:
    mask, low, packed = blocks[:, :32], blocks[:, 32:96], blocks[:, 96:108]
    two = torch.tensor([0, 2, 4, 6], dtype=torch.uint8, device=blocks.device)[None, None, :, None]
    codes = ((low.reshape(-1, 2, 1, 32) >> two) & 3).reshape(-1, 16, 16)
    one = torch.arange(8, dtype=torch.uint8, device=blocks.device)[None, :, None]
    missing = (((mask[:, None, :] >> one) & 1) ^ 1).reshape(-1, 16, 16)  # a clear mask bit takes 4 away
    pairs = torch.arange(0, 8, 2, dtype=torch.uint8, device=blocks.device)[None, :, None]
    upper = ((packed[:, None, 8:12] >> pairs) & 3).flatten(1)
    scales = _signed(_nibbles(packed[:, :8]) | (upper << 4)) - 32
    scale = (_half(blocks, 108) * scales.float())[:, :, None]
    return (scale * (_signed(codes) - _signed(missing << 2)).float()).flatten(1)


ENCODINGS: Mapping[str, Encoding] = MappingProxyType(
    {
        "q4_0": Encoding(32, 18, _q4_0),
        "q4_1": Encoding(32, 20, _q4_1),
        "q5_0": Encoding(32, 22, _q5_0),
        "q5_1": Encoding(32, 24, _q5_1),
        "q8_0": Encoding(32, 34, _q8_0),
        "q2_k": Encoding(256, 84, _q2_k),
        "q3_k": Encoding(256, 110, _q3_k),
        "q4_k": Encoding(256, 144, _q4_k),
        "q5_k": Encoding(256, 176, _q5_k),
        "q6_k": Encoding(256, 210, _q6_k),
    }
)
"""Every packed encoding that can be decoded, by the name that `Weight.encoding` uses."""


def decode(encoding: str, rows: torch.Tensor) -> torch.Tensor:
    """uint8 [rows, bytes a row] -> float32 [rows, elements a row]. KeyError for an unknown encoding."""
    form = ENCODINGS[encoding]
    return form.decode(rows.reshape(-1, form.nbytes)).reshape(rows.shape[0], -1)
