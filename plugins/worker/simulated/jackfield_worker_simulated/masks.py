"""Token masks, for a worker that chooses tokens without logits: a token that may not come is replaced by one that may."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import TokenMasks
from jackfield_worker_simulated.errors import SimulationError


def obey(
    masks: TokenMasks, tokens: NDArray[np.int32], rows: NDArray[np.int32], at: NDArray[np.int32], vocab: int
) -> None:
    """Change tokens int32 [m], in place, of `rows` with `at` known tokens [m] each. Which other token comes depends on the one
    that would have, its position and the mask alone."""
    words = -(-vocab // 32)
    if masks.bits.dtype != np.uint32 or masks.bits.shape != (len(masks.rows), words):
        raise SimulationError(
            f"token masks are {masks.bits.dtype} {masks.bits.shape}, not uint32 {(len(masks.rows), words)}"
        )
    place = {row: i for i, row in enumerate(rows.tolist())}
    if len(set(masks.rows.tolist())) != len(masks.rows):
        raise SimulationError(f"two token masks for one row: {masks.rows}")
    for row, bits in zip(masks.rows.tolist(), masks.bits, strict=True):
        i = place.get(row)
        if i is None:
            raise SimulationError(f"a token mask for row {row}, which is not sampled in this step")
        allowed = np.unpackbits(bits.view(np.uint8), bitorder="little").view(np.bool_)
        if allowed[vocab:].any():
            raise SimulationError(f"row {row}: the token mask allows ids beyond the vocabulary")
        if not allowed.any():
            raise SimulationError(f"row {row}: the token mask allows nothing")
        if not allowed[tokens[i]]:
            choices = np.flatnonzero(allowed)
            tokens[i] = choices[(int(tokens[i]) + int(at[i])) % len(choices)]
