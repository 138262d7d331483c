"""From `ModelWorkerBatch` (plain data) to `ForwardBatch` (device tensors of one forward). The conversion stands here only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import AttentionBatch, AttentionMode, HostLengths, ModelWorkerBatch
from jackfield.model_executor.device import Device
from jackfield.model_executor.req_to_token import ReqToTokenTable
from jackfield.model_executor.window_table import WindowTable


@dataclass(frozen=True, kw_only=True)
class ForwardBatch:
    """One forward over `tokens` new tokens of n rows.

    ids            int64 [tokens]
    positions      int64 [tokens]
    attention      what the attention backend is handed
    sampled        int64 [m], NumPy: batch indices of the rows that are sampled
    last_tokens    int64 [m]: where the sampled rows' last new tokens stand in the token dimension; None: every token is one
    """

    ids: torch.Tensor
    positions: torch.Tensor
    attention: AttentionBatch
    sampled: NDArray[np.int64]
    last_tokens: torch.Tensor | None


def make_forward_batch(
    batch: ModelWorkerBatch,
    table: ReqToTokenTable,
    newest: torch.Tensor,
    tables: Mapping[str, ReqToTokenTable | WindowTable],
) -> ForwardBatch:
    """`table` has the batch's writes already; `newest` int64 [max_rows] is the newest sampled token of each row.

    `tables`: KV group -> where its slots stand, `table` itself or one made of it. The batch has at least one row.
    """
    device = table.device
    n = batch.rows.size
    kv_lens = (batch.computed + batch.new_tokens).astype(np.int32)
    if batch.token_ids.size == n:  # one new token in every row: nothing is ragged
        mode, max_q = AttentionMode.DECODE, 1
        q_lens, last, q_starts = _one_each(n, device.torch_device)
        rows, positions = batch.rows, batch.computed.astype(np.int64)
    else:
        q_lens = batch.new_tokens.astype(np.int32)
        mode, max_q = attention_mode(q_lens), int(q_lens.max())
        starts = np.zeros(n + 1, dtype=np.int32)
        np.cumsum(q_lens, out=starts[1:])
        last, q_starts = starts[1:].astype(np.int64) - 1, device.hand_over(starts)
        rows = np.repeat(batch.rows, q_lens)
        positions = np.arange(starts[-1]) + np.repeat(batch.computed - starts[:-1], q_lens)

    sampled = np.flatnonzero(batch.sample)
    every = sampled.size == batch.token_ids.size
    out_slots = table.gather(rows, positions)
    slots: dict[int, torch.Tensor] = {id(table): out_slots}
    for other in tables.values():
        if isinstance(other, WindowTable) and id(other) not in slots:
            other.look_up(batch.rows, batch.computed, kv_lens)
            slots[id(other)] = other.translate(out_slots)
    return ForwardBatch(
        ids=_ids(batch, last, newest, device),
        positions=device.hand_over(positions),
        attention=AttentionBatch(
            mode=mode,
            rows=device.upload(batch.rows, np.int32),
            q_starts=q_starts,
            kv_lens=device.hand_over(kv_lens),
            out_slots={group: slots[id(other)] for group, other in tables.items()},
            # This worker never makes fewer tokens than it was asked for, so its `computed` is exact also where the
            # scheduler, which may be a step behind, knows an upper bound only.
            host=HostLengths(q_lens=q_lens, kv_lens=kv_lens, exact=True),
            max_q=max_q,
            max_kv=int(kv_lens.max()),
        ),
        sampled=sampled,
        last_tokens=None if every else device.hand_over(last[sampled]),
    )


@lru_cache(maxsize=1024)
def _one_each(n: int, device: torch.device) -> tuple[NDArray[np.int32], NDArray[np.int64], torch.Tensor]:
    """Lengths of n rows with one new token each, where these stand, and the rows' starts on the device: to be read only."""
    q_lens, last = np.ones(n, dtype=np.int32), np.arange(n)
    q_lens.flags.writeable = last.flags.writeable = False
    return q_lens, last, torch.arange(n + 1, dtype=torch.int32, device=device)


def _ids(batch: ModelWorkerBatch, last: NDArray[np.int64], newest: torch.Tensor, device: Device) -> torch.Tensor:
    """int64 [tokens]; last [n]: where each row's last new token stands, which is the newest one where it is relayed."""
    ids = batch.token_ids.astype(np.int64)
    if not np.count_nonzero(batch.relay):
        return device.hand_over(ids)
    to, rows = last[batch.relay], batch.rows[batch.relay]
    if device.host:
        ids[to] = newest.numpy()[rows]
        return device.hand_over(ids)
    there = device.hand_over(ids)
    there[device.upload(to, np.int64)] = newest[device.upload(rows, np.int64)]
    return there


def attention_mode(q_lens: NDArray[np.int32]) -> AttentionMode:
    """DECODE if every row has one new token, EXTEND if none has, else MIXED."""
    single = q_lens == 1
    if single.all():
        return AttentionMode.DECODE
    return AttentionMode.MIXED if single.any() else AttentionMode.EXTEND
