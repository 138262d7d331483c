"""What came of a prompt in a run that pools, as numbers: vectors, cut and brought to length 1; scores of labels.

Knows no API's shape. All arrays are float32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import Pooling
from jackfield.managers.requests.req_state import ReqState

Values = NDArray[np.float32]


def values_of(state: ReqState) -> Values:
    """[Pooling.width] of a request that ended well."""
    return np.frombuffer(state.pooled, dtype="<f4").astype(np.float32, copy=False)


def vector(state: ReqState, pooling: Pooling, dimensions: int | None = None) -> Values:
    """The embedding, or its first `dimensions` entries."""
    found = values_of(state)
    if dimensions is None or dimensions == len(found):
        return found
    found = found[:dimensions]
    length = np.linalg.norm(found)
    return (found / length).astype(np.float32) if pooling.normalize and length > 0 else found


def scores(logits: Values, activation: str) -> Values:
    """The labels' scores. activation: as in `Pooling`."""
    if activation == "identity":
        return logits
    if activation == "sigmoid":
        # Of both forms the one whose exponential cannot overflow.
        small = np.exp(-np.abs(logits))
        return np.where(logits >= 0, 1 / (1 + small), small / (1 + small)).astype(np.float32)
    shifted = np.exp(logits - logits.max())
    shares: Values = (shifted / shifted.sum()).astype(np.float32)
    return shares


def cosine(one: Values, other: Values) -> float:
    """Of two vectors; 0 if one of them is 0."""
    length = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / length if length > 0 else 0.0
