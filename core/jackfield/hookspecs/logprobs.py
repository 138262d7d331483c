"""Log-probabilities as they cross between scheduler and worker: what a row wants, and what came of a step.

They are the log-softmax of the model's raw logits in float32: before penalties, bias, temperature, top-k and every other
thing that shapes the draw.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs.common import no_slots


@dataclass(frozen=True, kw_only=True)
class LogprobSpec:
    """What one row wants. Every sampled token gets an entry; tokens of the prompt get one where the spec says so.

    top            how many of the likeliest tokens each entry names, >= 0
    ids            int32 [k] tokens whose values each entry gives beside
    prompt_start   first position, >= 1, whose token gets a prompt entry. The entry of position p comes of the forward of
                   position p - 1, so that the row never starts to compute behind prompt_start - 1
    prompt_end     end of those positions; prompt_start == prompt_end: none
    """

    top: int = 0
    ids: NDArray[np.int32] = field(default_factory=no_slots)
    prompt_start: int = 1
    prompt_end: int = 1


@dataclass(frozen=True, kw_only=True)
class Logprobs:
    """The entries of one step, ragged over its n rows: row i's are starts[i] .. starts[i + 1] - 1, first those of prompt
    tokens by position, then one for each token that the row gave. A row that wants none, or failed, has none.

    starts       int32 [n + 1]
    prompt       int32 [n] how many of a row's entries are of prompt tokens: positions computed + 1 .. computed +
                 new_tokens, as far as they lie between the spec's prompt_start and prompt_end
    chosen       float32 [e] the entry's own token
    top_values   float32 [e, t] the likeliest tokens, falling; t is the most that any row of the step wants, and what lies
                 beyond a row's own `top` is not to be read
    top_ids      int32 [e, t]
    ids_values   float32, ragged: entry j's values of the spec's ids, in their order, are ids_starts[j] .. ids_starts[j + 1] - 1
    ids_starts   int32 [e + 1]
    """

    starts: NDArray[np.int32]
    prompt: NDArray[np.int32]
    chosen: NDArray[np.float32]
    top_values: NDArray[np.float32]
    top_ids: NDArray[np.int32]
    ids_values: NDArray[np.float32]
    ids_starts: NDArray[np.int32]
