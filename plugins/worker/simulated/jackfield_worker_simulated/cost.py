"""How long a step takes. The formula is in the README."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield_worker_simulated.options import SimulatedOptions


def step_seconds(options: SimulatedOptions, new_tokens: NDArray[np.int32], computed: NDArray[np.int32]) -> float:
    """new_tokens, computed: int32 [n], as in the batch."""
    new = new_tokens.astype(np.float64)
    context = computed + new
    prefill = (new_tokens > 1) | (computed == 0)
    new_prefill = new[prefill]
    # The i-th of n new tokens sees computed + i keys, i from 1 to n.
    pairs = new_prefill * (computed[prefill] + (new_prefill + 1.0) / 2.0)
    microseconds = (
        options.base_us
        + options.prefill_us_per_token * new_prefill.sum()
        + options.prefill_us_per_million_pairs * pairs.sum() / 1e6
        + options.decode_us_per_row * (len(new) - len(new_prefill))
        + options.kv_us_per_context_token * context.sum()
    )
    return float(microseconds) / 1e6
