"""What a policy sees: read-only columns over the waiting and the running requests, and the numbers of the step."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs.cache import PrefixForest


class RequestTable(Protocol):
    """Columns of equal length, one row a request. Read-only, valid during the call.

    Row numbers change from step to step; `uid` does not and is never used twice. A policy's test can make one from any
    object with these attributes.
    """

    def __len__(self) -> int: ...

    @property
    def uid(self) -> NDArray[np.int64]:
        """Unique number of the request in this replica."""
        ...

    @property
    def arrival(self) -> NDArray[np.float64]:
        """Seconds on the scheduler's clock at which the scheduler received it."""
        ...

    @property
    def prompt_tokens(self) -> NDArray[np.int32]:
        """Length of the prompt."""
        ...

    @property
    def computed(self) -> NDArray[np.int32]:
        """Tokens whose KV is written (or launched to be written)."""
        ...

    @property
    def output_tokens(self) -> NDArray[np.int32]:
        """Tokens generated so far; a waiting request has some if it was retracted, and they are computed again with the
        prompt."""
        ...

    @property
    def max_new_tokens(self) -> NDArray[np.int32]:
        """The request's cap on output tokens."""
        ...

    @property
    def cached_tokens(self) -> NDArray[np.int32]:
        """Tokens that the prefix cache holds for it: exact once admitted, and a hint for waiting requests (needs
        `cached_tokens`). A step renews a bounded number of hints after the cache changed, so that one may be some steps old,
        and 0 for a request that just came in a crowd."""
        ...

    @property
    def priority(self) -> NDArray[np.int32]:
        """Higher is more urgent; 0 unless the request said otherwise."""
        ...

    @property
    def tenant(self) -> NDArray[np.int32]:
        """A code for the tenant, `tenant_code` of its name; 0 for none."""
        ...

    @property
    def adapter(self) -> NDArray[np.int32]:
        """A code for the adapter; 0 for the base model."""
        ...

    @property
    def deadline(self) -> NDArray[np.float64]:
        """Seconds on the scheduler's clock; infinity for none."""
        ...

    @property
    def retractions(self) -> NDArray[np.int32]:
        """How often it was retracted."""
        ...

    @property
    def skips(self) -> NDArray[np.int32]:
        """Steps in which it was eligible and passed over by the policy."""
        ...

    @property
    def held_tokens(self) -> NDArray[np.int32]:
        """KV slots that it holds outside the prefix cache."""
        ...


@dataclass(frozen=True, kw_only=True)
class SchedulerView:
    """The numbers of one step. Time and randomness come from here and from nowhere else.

    now              seconds on the scheduler's clock
    seed             64-bit number drawn from the run's seed and the step
    step             number of the step that is being decided
    free             free KV slots
    evictable        KV slots that the cache could give back now
    total            KV slots in all
    page_size        slots a page
    max_running      most requests that may run at once
    max_prefill      most prefill tokens in one step
    running          the requests that hold a place now, those whose prompt is computed in parts included. While a step is
                     in flight, whoever will end by it is still among them
    forest           the cache's shape over the waiting requests, whose rows are its keys; only in `order` and `take` of a
                     policy that needs `forest`, and None even there in a step in which the cache failed at it. With many
                     waiting it covers those that came first; of the others it says that nothing is cached (node -1)
    waiting          the waiting requests, only in `victims` for one of them
    """

    now: float
    seed: int
    step: int
    free: int
    evictable: int
    total: int
    page_size: int
    max_running: int
    max_prefill: int
    running: RequestTable
    forest: PrefixForest | None = None
    waiting: RequestTable | None = None


def tenant_code(tenant: str | None) -> int:
    """The code of a tenant's name, by which a policy knows it: 0 for None, else 1 or more, int32.

    A hash, so that it is the same in every replica and needs no table that grows with the tenants ever seen; two tenants
    share a code with probability 2**-31.
    """
    if tenant is None:
        return 0
    return 1 + int.from_bytes(hashlib.blake2b(tenant.encode(), digest_size=8).digest(), "little") % (2**31 - 1)
