"""What KV memory and the tiers behind it know of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import CacheKey, Evicted, Lease


class Tiers(Protocol):
    """Who keeps KV beyond the cache."""

    def committed(self, key: CacheKey, slots: NDArray[np.int32]) -> None: ...

    def evicted(self, runs: Sequence[Evicted]) -> None: ...

    def clear(self) -> None: ...

    def kept(self, uid: int, cached: int) -> dict[str, int]:
        """Of a request's `cached` first tokens, how many each tier had kept and gave back for it; none is not told. Asked
        once, when the request is over."""
        ...


@dataclass(frozen=True, kw_only=True)
class Loading:
    """KV of `key`'s tokens on its way into `slots`, which follow the lease's."""

    key: CacheKey
    lease: Lease
    slots: NDArray[np.int32]
