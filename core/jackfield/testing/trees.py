"""Masks of token trees (`TreeMask.among`) for tests: which of its row's new tokens a token sees."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray


def trees(q_lens: NDArray[np.int32], random: np.random.Generator) -> torch.Tensor:
    """bool [total new, longest row]: a token sees its ancestors in a random tree of its row's tokens. Parents lie before their
    children or behind them; of each token's sight of itself, which goes without saying, some rows say it and some do not."""
    among = torch.zeros((int(q_lens.sum()), int(q_lens.max())), dtype=torch.bool)
    start = 0
    for q_len in q_lens.tolist():
        order = random.permutation(q_len)
        itself = bool(random.integers(2))
        for rank, token in enumerate(order.tolist()):
            if rank > 0:
                parent = int(order[random.integers(rank)])
                among[start + token] = among[start + parent]
                among[start + token, parent] = True
        if itself:
            among[start : start + q_len, :q_len].fill_diagonal_(True)
        start += q_len
    return among


def chains(q_lens: NDArray[np.int32], random: np.random.Generator) -> torch.Tensor:
    """The same where each row is one branch in its order: what causality says."""
    rows = [torch.ones((q_len, q_len), dtype=torch.bool).tril_() for q_len in q_lens.tolist()]
    width = int(q_lens.max())
    return torch.cat([torch.nn.functional.pad(row, (0, width - row.shape[1])) for row in rows])
