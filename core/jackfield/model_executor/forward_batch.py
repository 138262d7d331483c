"""From `ModelWorkerBatch` (plain data) to `ForwardBatch` (device tensors of one forward). The conversion stands here only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import AttentionBatch, AttentionMode, HostLengths, ModelWorkerBatch
from jackfield.model_executor.req_to_token import ReqToTokenTable
from jackfield.model_executor.upload import upload
from jackfield.model_executor.window_table import WindowTable


@dataclass(frozen=True, kw_only=True)
class ForwardBatch:
    """One forward over `tokens` new tokens of n rows.

    ids            int64 [tokens]
    positions      int64 [tokens]
    attention      what the attention backend is handed
    sampled        int64 [m], NumPy: batch indices of the rows that are sampled
    last_tokens    int64 [m]: where the sampled rows' last new tokens stand in the token dimension
    """

    ids: torch.Tensor
    positions: torch.Tensor
    attention: AttentionBatch
    sampled: NDArray[np.int64]
    last_tokens: torch.Tensor


def make_forward_batch(
    batch: ModelWorkerBatch,
    table: ReqToTokenTable,
    newest: torch.Tensor,
    tables: Mapping[str, ReqToTokenTable | WindowTable],
) -> ForwardBatch:
    """`table` has the batch's writes already; `newest` int64 [max_rows] is the newest sampled token of each row.

    `tables`: KV group -> where its slots stand, `table` itself or one made of it. The batch has at least one row.
    """
    device = newest.device
    q_lens = batch.new_tokens.astype(np.int32)
    kv_lens = (batch.computed + batch.new_tokens).astype(np.int32)
    q_starts = np.zeros(q_lens.size + 1, dtype=np.int32)
    np.cumsum(q_lens, out=q_starts[1:])
    last = q_starts[1:].astype(np.int64) - 1
    positions = np.arange(q_starts[-1]) + np.repeat(batch.computed - q_starts[:-1], q_lens)

    ids = upload(batch.token_ids, device, np.int64)
    if batch.relay.any():
        ids[upload(last[batch.relay], device, np.int64)] = newest[upload(batch.rows[batch.relay], device, np.int64)]
    positions_on_device = upload(positions, device, np.int64)
    out_slots = table.gather(upload(np.repeat(batch.rows, q_lens), device, np.int64), positions_on_device)
    slots: dict[int, torch.Tensor] = {id(table): out_slots}
    for other in tables.values():
        if isinstance(other, WindowTable) and id(other) not in slots:
            other.look_up(batch.rows, batch.computed, kv_lens)
            slots[id(other)] = other.translate(out_slots)
    sampled = np.flatnonzero(batch.sample).astype(np.int64)
    return ForwardBatch(
        ids=ids,
        positions=positions_on_device,
        attention=AttentionBatch(
            mode=attention_mode(q_lens),
            rows=upload(batch.rows, device, np.int32),
            q_starts=upload(q_starts, device, np.int32),
            kv_lens=upload(kv_lens, device, np.int32),
            out_slots={group: slots[id(other)] for group, other in tables.items()},
            # This worker never makes fewer tokens than it was asked for, so its `computed` is exact also where the
            # scheduler, which may be a step behind, knows an upper bound only.
            host=HostLengths(q_lens=q_lens, kv_lens=kv_lens, exact=True),
            max_q=int(q_lens.max()),
            max_kv=int(kv_lens.max()),
        ),
        sampled=sampled,
        last_tokens=upload(last[sampled], device, np.int64),
    )


def attention_mode(q_lens: NDArray[np.int32]) -> AttentionMode:
    """DECODE if every row has one new token, EXTEND if none has, else MIXED."""
    single = q_lens == 1
    if single.all():
        return AttentionMode.DECODE
    return AttentionMode.MIXED if single.any() else AttentionMode.EXTEND
