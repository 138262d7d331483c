"""How a launch is cut, found on the host from sizes and lengths alone: tile shapes, and splits of the keys. No tensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jackfield_attention_triton.layers import LayerKind, block_of
from jackfield_attention_triton.tiles import HostTiles, decode_tiles, extend_tiles, spans
from jackfield_attention_triton.tuning import Blocks, Tuning

# Of the smaller of two tiles for rows with several new tokens: each size more is one more kernel to compile.
_FEW_LINES = 32
# Tiles of many queries wait for arithmetic, not for memory: a quarter of the programs keeps the device busy.
_SHORTER = 4
# Programs of a launch with splits, as a multiple of those wanted: in uneven batches most find nothing to do.
_MOST_PROGRAMS = 8


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Splits of a launch's keys: `count` of a tile at most, some `budget` of all tiles, none shorter than `least`. most: what
    `count` is at most in any launch; the kernels are compiled for it, so that no other number compiles them anew."""

    count: int
    most: int
    budget: int
    least: int


@dataclass(frozen=True, kw_only=True)
class LaunchShape:
    """A launch before it has memory. blocks: `lines` is what this launch has; queries, tile_heads: new tokens of a tile, and
    query heads of one KV head in it; causal, tree: what rules among a row's new tokens; cut: None, no splits."""

    tiles: HostTiles
    blocks: Blocks
    queries: int
    tile_heads: int
    causal: bool
    tree: bool
    cut: Cut | None

    @property
    def width(self) -> int:
        """Lines of all tiles, in tokens."""
        return self.tiles.items.size * self.queries


def batch_launches(
    kind: LayerKind, tuning: Tuning, q_lens: NDArray[np.int32], kv_lens: NDArray[np.int32], *, tree: bool
) -> list[LaunchShape]:
    """The launches of one batch: rows of one new token, and longer ones; those without any have nothing to launch. kv_lens may
    be upper bounds."""
    found = []
    single = decode_tiles(q_lens)
    if single.items.size:
        seen = spans(single, q_lens, kv_lens, 1, kind, True)
        found.append(_decode(kind, tuning, single, int(seen.sum()), int(seen.max())))
    if (q_lens > 1).any():
        found.append(_extend(kind, tuning, q_lens, kv_lens, tree))
    return found


def graph_launch(kind: LayerKind, tuning: Tuning, rows: int, max_kv: int) -> LaunchShape:
    """A decode step of lengths up to max_kv, of which nothing more is known: as many splits as may be of use."""
    longest = min(max_kv, kind.window) if kind.window else max_kv
    return _decode(kind, tuning, decode_tiles(np.ones(rows, dtype=np.int32)), 0, longest)


def _decode(kind: LayerKind, tuning: Tuning, tiles: HostTiles, total: int, longest: int) -> LaunchShape:
    lines = min(block_of(kind.share), tuning.most_lines)
    tile_heads = min(kind.share, lines)
    return LaunchShape(
        tiles=tiles,
        blocks=tuning.decode.with_lines(lines),
        queries=1,
        tile_heads=tile_heads,
        causal=True,
        tree=False,
        cut=_cut(kind, tuning, tuning.decode.keys, tile_heads, tiles.items.size, total, longest),
    )


def _extend(
    kind: LayerKind, tuning: Tuning, q_lens: NDArray[np.int32], kv_lens: NDArray[np.int32], tree: bool
) -> LaunchShape:
    heads = min(kind.share, tuning.extend.lines)
    few = min(_FEW_LINES, tuning.extend.lines)  # a verified tree is smaller than a chunk
    lines = few if int(q_lens.max()) * heads <= few else tuning.extend.lines
    tile_heads = min(heads, lines)
    queries = lines // tile_heads
    causal = kind.causal and not tree
    tiles = extend_tiles(q_lens, kv_lens, queries)
    seen = spans(tiles, q_lens, kv_lens, queries, kind, causal)
    enough = tiles.items.size * _side_by_side(kind, tile_heads) >= tuning.programs // _SHORTER
    return LaunchShape(
        tiles=tiles,
        blocks=tuning.extend.with_lines(lines),
        queries=queries,
        tile_heads=tile_heads,
        causal=causal,
        tree=tree,
        cut=None
        if enough
        else _cut(kind, tuning, tuning.extend.keys, tile_heads, tiles.items.size, int(seen.sum()), int(seen.max())),
    )


def _cut(
    kind: LayerKind, tuning: Tuning, keys: int, tile_heads: int, tiles: int, total: int, longest: int
) -> Cut | None:
    """total, longest: keys that all tiles see, and one. What `split_length_kernel` does, as far as the host can tell."""
    side_by_side = _side_by_side(kind, tile_heads)
    budget = max(1, tuning.programs // side_by_side)
    least = -(-tuning.least_keys // keys) * keys
    length = -(-max(least, -(-total // budget)) // keys) * keys
    room = max(1, _MOST_PROGRAMS * tuning.programs // (tiles * side_by_side))
    count = min(-(-longest // length), tuning.max_splits, room)
    return Cut(count=count, most=tuning.max_splits, budget=budget, least=least) if count > 1 else None


def _side_by_side(kind: LayerKind, tile_heads: int) -> int:
    """Programs of one tile and split."""
    return kind.num_kv_heads * -(-kind.share // tile_heads)
