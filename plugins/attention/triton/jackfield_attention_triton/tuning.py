"""Block sizes by GPU generation and head size: a table, because trials at start cost minutes and differ from run to run.

The numbers come from arithmetic, not from measurements: what a tile holds of queries, and what its stages hold of keys and
values, must leave shared memory for two programs a multiprocessor (228 KiB on 9.0 and 10.x, 164 on 8.0, 100 on 8.6, 8.9 and
12.x), for one with heads of 256; a decode step must have some 40 KiB a multiprocessor under way to reach the bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """lines (queries times heads) and keys of a tile, warps of a program, stages of its loop over the keys."""

    lines: int
    keys: int
    warps: int
    stages: int

    def with_lines(self, lines: int) -> Blocks:
        """The same for tiles of other lines."""
        return replace(self, lines=lines)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How the work of one kind of layer is cut.

    decode, extend   tiles of rows with one new token, and with more
    programs     that a launch should have at least, if its keys must be cut for it
    least_keys   of a split: shorter ones cost more than they bring
    max_splits   of one tile
    most_lines   of a tile of rows with one new token: query heads beyond it are another tile's
    """

    decode: Blocks
    extend: Blocks
    programs: int
    least_keys: int
    max_splits: int
    most_lines: int = 64


_LARGE, _MIDDLE, _SMALL, _INTERPRETER = "228 KiB", "164 KiB", "100 KiB", "interpreter"

_TABLE: dict[tuple[str, int], tuple[Blocks, Blocks]] = {
    # (shared memory, largest head with elements of two bytes): decode, extend
    (_LARGE, 64): (Blocks(lines=16, keys=128, warps=4, stages=3), Blocks(lines=128, keys=64, warps=4, stages=3)),
    (_LARGE, 128): (Blocks(lines=16, keys=64, warps=4, stages=3), Blocks(lines=128, keys=64, warps=8, stages=2)),
    (_LARGE, 256): (Blocks(lines=16, keys=32, warps=4, stages=3), Blocks(lines=64, keys=64, warps=8, stages=2)),
    (_LARGE, 512): (Blocks(lines=16, keys=16, warps=4, stages=3), Blocks(lines=32, keys=32, warps=8, stages=2)),
    (_MIDDLE, 64): (Blocks(lines=16, keys=64, warps=4, stages=4), Blocks(lines=128, keys=64, warps=4, stages=2)),
    (_MIDDLE, 128): (Blocks(lines=16, keys=64, warps=4, stages=2), Blocks(lines=64, keys=32, warps=4, stages=2)),
    (_MIDDLE, 256): (Blocks(lines=16, keys=32, warps=4, stages=2), Blocks(lines=64, keys=32, warps=8, stages=2)),
    (_MIDDLE, 512): (Blocks(lines=16, keys=16, warps=4, stages=2), Blocks(lines=32, keys=16, warps=8, stages=2)),
    (_SMALL, 64): (Blocks(lines=16, keys=64, warps=4, stages=2), Blocks(lines=64, keys=64, warps=4, stages=2)),
    (_SMALL, 128): (Blocks(lines=16, keys=32, warps=4, stages=2), Blocks(lines=64, keys=32, warps=4, stages=2)),
    (_SMALL, 256): (Blocks(lines=16, keys=16, warps=4, stages=2), Blocks(lines=32, keys=32, warps=4, stages=2)),
    (_SMALL, 512): (Blocks(lines=16, keys=16, warps=4, stages=1), Blocks(lines=16, keys=16, warps=4, stages=2)),
    (_SMALL, 1024): (Blocks(lines=16, keys=16, warps=4, stages=1), Blocks(lines=16, keys=16, warps=4, stages=1)),
    # Few and large steps, for each costs as much as any other; still several blocks and splits in the suite's cases.
    (_INTERPRETER, 512): (Blocks(lines=16, keys=32, warps=1, stages=1), Blocks(lines=64, keys=64, warps=1, stages=1)),
}
_QUERIES = {_LARGE: 128 << 10, _MIDDLE: 64 << 10, _SMALL: 32 << 10}  # bytes that one tile may hold of them
_WAVES = 8  # programs of a decode step for each multiprocessor: four waves of two, so that the last, partial one weighs little


def tuning_for(
    capability: tuple[int, int] | None, processors: int, head_block: int, itemsize: int, max_splits: int
) -> Tuning:
    """capability: of the GPU, None for the interpreter; processors: its multiprocessors; head_block: the larger of a layer's
    two padded head sizes; itemsize: bytes of an element of the queries or of the keys, whichever is the larger."""
    if capability is None:
        decode, extend = _TABLE[_INTERPRETER, 512]
        return Tuning(decode=decode, extend=extend, programs=16, least_keys=64, max_splits=max_splits)
    memory = _memory(capability)
    # Elements of four bytes take the room of a head twice as large.
    wanted = head_block * max(1, itemsize // 2)
    sizes = sorted(size for where, size in _TABLE if where == memory)
    decode, extend = _TABLE[memory, next((size for size in sizes if size >= wanted), sizes[-1])]
    return Tuning(
        decode=decode,
        extend=extend,
        programs=_WAVES * processors,
        least_keys=128,
        max_splits=max_splits,
        most_lines=max(decode.lines, min(64, _QUERIES[memory] // (head_block * itemsize))),
    )


def _memory(capability: tuple[int, int]) -> str:
    major, minor = capability
    if major in (9, 10, 11):
        return _LARGE
    return _MIDDLE if (major, minor) in ((8, 0), (8, 7)) else _SMALL
