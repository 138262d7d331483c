"""Whole sequences with fixed queries, keys and values, fed to an attention backend in steps of any kind.

For what must not depend on how a sequence is cut, batched and placed. Knows no backend.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from jackfield.hookspecs import AttentionBackend, AttentionBatch, AttentionMode, HostLengths
from jackfield.testing.attention_batches import PreparedCase

Step = Sequence[tuple[int, int]]
"""(sequence, new tokens) of each row of one batch."""


def random_steps(lengths: Sequence[int], random: np.random.Generator) -> list[Step]:
    """Batches that bring all sequences to their ends, in any order and in pieces of any size."""
    done = [0] * len(lengths)
    steps: list[Step] = []
    while open_ := [i for i, n in enumerate(lengths) if done[i] < n]:
        chosen = random.permutation(open_)[: random.integers(1, len(open_) + 1)].tolist()
        step = []
        for i in chosen:
            left = lengths[i] - done[i]
            new = min(left, int(random.choice([1, 1, 2, 3, 17, 100, left])))
            done[i] += new
            step.append((i, new))
        steps.append(step)
    return steps


def one_by_one(lengths: Sequence[int]) -> list[Step]:
    """Each sequence alone, in one piece."""
    return [[(i, n)] for i, n in enumerate(lengths)]


def outputs(prepared: PreparedCase, backend: AttentionBackend, steps: Sequence[Step]) -> list[torch.Tensor]:
    """What each sequence's tokens got from the first layer, in order. `prepared` is a case of rows without a prefix, the
    sequences; its KV becomes NaN first."""
    layer, lengths = prepared.case.layer, [new for _, new in prepared.case.lengths]
    for tensors in prepared.kv.tensors.values():
        for tensor in tensors:
            tensor.fill_(math.nan if tensor.is_floating_point() else 0)
    backend.bind(prepared.pools)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    table, rows = prepared.context.tables[layer.group], prepared.batch.rows
    shape, device = (layer.num_heads, layer.v_head_size), prepared.q.device
    done = [0] * len(lengths)
    found = [torch.full((n, *shape), math.nan, dtype=prepared.q.dtype, device=device) for n in lengths]
    for step in steps:
        q_lens = np.array([new for _, new in step], dtype=np.int32)
        kv_lens = np.array([done[i] + new for i, new in step], dtype=np.int32)
        tokens = torch.from_numpy(np.concatenate([starts[i] + done[i] + np.arange(new) for i, new in step])).to(device)
        batch = AttentionBatch(
            mode=AttentionMode.DECODE if (q_lens == 1).all() else AttentionMode.EXTEND,
            rows=rows[[i for i, _ in step]],
            q_starts=torch.from_numpy(np.concatenate([[0], np.cumsum(q_lens)]).astype(np.int32)).to(device),
            kv_lens=torch.from_numpy(kv_lens.copy()).to(device),
            out_slots={
                layer.group: torch.cat([table[int(rows[i]), done[i] : done[i] + new].long() for i, new in step])
            },
            host=HostLengths(q_lens=q_lens, kv_lens=kv_lens),
            max_q=int(q_lens.max()),
            max_kv=int(kv_lens.max()),
        )
        out = torch.full((len(tokens), *shape), math.nan, dtype=prepared.q.dtype, device=device)
        backend.attend(backend.plan(batch), layer, prepared.q[tokens], prepared.k[tokens], prepared.v[tokens], out)
        at = 0
        for i, new in step:
            found[i][done[i] : done[i] + new] = out[at : at + new]
            done[i] += new
            at += new
    return found
