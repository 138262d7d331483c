"""What a batch looks like where a token's attention must not depend on it: pieces whose keys are whole tiles.

A tile is `TILE` positions of the sequence, counted from its start, whatever the chunk, the page size or the neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from jackfield.hookspecs import AttentionBatch, AttentionPlan
from jackfield.layers.to_device import to_device
from jackfield_attention_torch.plan import Sight, bucket_members, tree_sees

TILE = 128  # keys; shorter ones waste less on short sequences, longer ones need fewer additions between tiles


@dataclass(frozen=True, kw_only=True)
class TiledView:
    """The keys of a piece under one sight.

    slots   int64 [rows, tiles * TILE]; beyond a row's end its last token is repeated, before its
            window its first one
    first   position of the first one, a multiple of TILE
    """

    slots: torch.Tensor
    first: int


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Rows with the same number of query tokens.

    tokens      int64 [rows * q_len], where the queries stand
    positions   int64 [rows, q_len], theirs in the sequence
    kv_lens, cached     int64 [rows], all tokens and those before the new ones
    among       under a tree mask, see `tree_sees`
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    kv_lens: torch.Tensor
    cached: torch.Tensor
    among: torch.Tensor | None
    views: Mapping[Sight, TiledView]


class TiledPlan(AttentionPlan):
    """The pieces of one batch, and the slots that its new tokens are written to."""

    __slots__ = ("out_slots", "pieces")

    def __init__(self, pieces: list[Piece], out_slots: Mapping[str, torch.Tensor]) -> None:
        self.pieces = pieces
        self.out_slots = out_slots


def make_tiled_plan(
    batch: AttentionBatch, tables: Mapping[str, torch.Tensor], sights: Iterable[Sight], most_queries: int
) -> TiledPlan:
    """most_queries: tokens of a row in one piece, at most."""
    host, device = batch.host, batch.rows.device
    sights = tuple(sights)
    starts = np.concatenate([[0], np.cumsum(host.q_lens, dtype=np.int64)])
    pieces = []
    for members in bucket_members(host.q_lens, host.kv_lens):
        q_len = int(host.q_lens[members[0]])
        index = to_device(members, device)
        rows, kv_lens = batch.rows[index].long(), batch.kv_lens[index].long()
        lengths = host.kv_lens[members]
        for begin in range(0, q_len, most_queries):
            end = min(q_len, begin + most_queries)
            span = np.arange(begin, end)
            # Lengths that are not exact are upper bounds, so of the first key that is seen nothing is known.
            earliest = int(lengths.min()) - q_len + begin if host.exact else 0
            latest = int(lengths.max()) - q_len + end - 1
            tree = batch.mask is not None
            views = {
                sight: _tiled_view(
                    *(sight, tables[sight.group], rows, kv_lens, earliest),
                    *(latest if sight.causal and not tree else int(lengths.max()) - 1, q_len),
                )
                for sight in sights
            }
            tokens = to_device((starts[members][:, None] + span).reshape(-1), device)
            pieces.append(
                Piece(
                    tokens=tokens,
                    positions=kv_lens[:, None] - q_len + to_device(span, device),
                    kv_lens=kv_lens,
                    cached=kv_lens - q_len,
                    among=None if batch.mask is None else batch.mask.among[tokens].view(len(members), len(span), -1),
                    views=views,
                )
            )
    return TiledPlan(pieces, batch.out_slots)


def _tiled_view(
    sight: Sight,
    table: torch.Tensor,
    rows: torch.Tensor,
    kv_lens: torch.Tensor,
    earliest: int,
    last: int,
    q_len: int,
) -> TiledView:
    """earliest: bound of the queries' positions; last: of the keys' that they see; q_len: the rows' new tokens."""
    first = 0 if sight.window is None else max(0, earliest - sight.window + 1) // TILE * TILE
    tiles = -(-(last + 1 - first) // TILE)
    position = first + torch.arange(tiles * TILE, device=rows.device)
    held = torch.minimum(position, kv_lens[:, None] - 1)
    if sight.window is not None:  # a row's entries before the first key that it sees are undefined
        held = torch.maximum(held, (kv_lens[:, None] - q_len - sight.window + 1).clamp(min=0))
    slots = table[rows[:, None], held].long()
    return TiledView(slots=slots, first=first)


def seen(piece: Piece, view: TiledView, sight: Sight) -> torch.Tensor:
    """bool [rows, q_len, tiles * TILE]: which key each query sees."""
    key = view.first + torch.arange(view.slots.shape[1], device=view.slots.device)
    query = piece.positions[:, :, None]
    found = key < piece.kv_lens[:, None, None]
    if piece.among is not None:
        found = found & tree_sees(piece.among, key.expand(len(query), -1), piece.positions, piece.cached)
    elif sight.causal:
        found = found & (key <= query)
    if sight.window is not None:
        found = found & (key > query - sight.window)
    return found.expand(-1, query.shape[1], -1)
