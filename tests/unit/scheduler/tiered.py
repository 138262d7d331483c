"""A scheduler over the simulated worker with KV tiers: every slot is proven, copies take virtual time, tiers fail on demand."""

from __future__ import annotations

from typing import Any

import numpy as np

from jackfield.hookspecs import (
    CacheKey,
    KVMover,
    KVTier,
    Moved,
    PrefixCache,
    Shard,
    StepOutcome,
    TierRule,
    TierUse,
    WorkerContext,
)
from jackfield.managers.scheduler.request import cache_namespace
from jackfield.managers.scheduler.tiers.blocks import block_keys
from jackfield.managers.scheduler.tiers.store import KVTiers, TierSetup
from jackfield.observability.clock import ManualClock
from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield_cache_prefix.options import Eviction
from jackfield_cache_prefix.radix_cache import RadixCache
from jackfield_worker_simulated.hashing import PrefixHasher
from jackfield_worker_simulated.options import SimulatedOptions
from jackfield_worker_simulated.worker import SimulatedWorker

VOCAB = 1000
CONTEXT = 128
FINGERPRINT = b"f" * 32
NAMESPACE = cache_namespace("0", 0, None)


class DictTier(KVTier):
    """Keeps everything; fails as `plan` says: called with what it is about to do, it may raise or return False (a miss)."""

    def __init__(self, rule: TierRule, plan: Any = None) -> None:
        self.rule = rule
        self.blocks: dict[bytes, bytes] = {}
        self._plan = plan or (lambda what: True)
        self.closed = False

    def has(self, key: bytes) -> bool:
        return key in self.blocks

    def get(self, key: bytes) -> bytes | None:
        return self.blocks.get(key) if self._plan("get") else None

    def put(self, key: bytes, block: bytes) -> None:
        if self._plan("put"):
            self.blocks[key] = block

    def clear(self) -> None:
        self._plan("clear")
        self.blocks.clear()

    def use(self) -> TierUse:
        return TierUse(blocks=len(self.blocks), bytes=0, capacity=0)

    def close(self) -> None:
        self.closed = True


class FailingMover(KVMover):
    """Says of a copy that it failed, though the copy was begun: nobody may rely on what it left."""

    def __init__(self, mover: KVMover, fails: Any) -> None:
        self.bytes_per_slot, self.layout = mover.bytes_per_slot, mover.layout
        self._mover, self._fails = mover, fails

    def read(self, slots: Any) -> int:
        return self._mover.read(slots)

    def write(self, slots: Any, data: Any) -> int:
        return self._mover.write(slots, data)

    def poll(self) -> list[Moved]:
        return [
            Moved(ticket=moved.ticket, error="the link is down") if self._fails() else moved
            for moved in self._mover.poll()
        ]

    def wait(self, timeout: float | None) -> None:
        self._mover.wait(timeout)


class TieredRun(SchedulerHarness):
    """block: tokens a block; copy_us: microseconds a token of a copy. A step takes a virtual second."""

    def __init__(
        self,
        *tiers: KVTier,
        page_size: int = 1,
        total: int = 64,
        block: int = 8,
        copy_us: float = 1.0,
        fails: Any = None,
        eviction: Eviction = "lru",
        cache: PrefixCache | None = None,
        max_running: int = 8,
        **settings: Any,
    ) -> None:
        clock = ManualClock()
        context = WorkerContext(
            kind="worker",
            name="simulated",
            instance="simulated",
            shard=Shard(),
            device="cpu",
            dtype="float32",
            seed=0,
            page_size=page_size,
            max_running=max_running,
            max_total_tokens=total,
            max_context=CONTEXT,
            max_tokens=256,
            vocab_size=VOCAB,
            clock=clock,
        )
        made: Any = SimulatedWorker(context, SimulatedOptions(verify="all", copy_us_per_token=copy_us))
        mover: KVMover = made.mover()
        if fails is not None:
            mover = FailingMover(mover, fails)
        back = any(tier.rule.write == "back" for tier in tiers)
        self.cache = cache if cache is not None else RadixCache(page_size, eviction, evicted=back)
        setup = TierSetup(
            mover=mover,
            tiers=[(f"kv_tier.t{i}", tier) for i, tier in enumerate(tiers)],
            fingerprint=FINGERPRINT,
            block_tokens=block,
            threaded=False,
        )
        self.block = block
        super().__init__(
            worker=made,
            cache=self.cache,
            clock=clock,
            context_length=CONTEXT,
            vocab_size=VOCAB,
            max_running_requests=max_running,
            tiers=setup if tiers else None,
            **settings,
        )

    @property
    def tiers(self) -> KVTiers:
        tiers = self.scheduler._tiers
        assert tiers is not None
        return tiers

    @property
    def loads(self) -> dict[str, int]:
        return self.tiers.numbers()[""]

    def turn(self) -> StepOutcome:
        """As the harness's; with nothing to run, it waits, as a runtime does."""
        outcome = super().turn()
        if outcome is StepOutcome.IDLE:
            self.scheduler.wait()
        return outcome

    def settle(self) -> None:
        """Until no copy is under way either."""
        self.run()
        while self.tiers.pending:
            self.tiers.wait(None)
            self.turn()

    def check_blocks(self, tier: DictTier, sequences: list[list[int]]) -> int:
        """Every block in the tier is that of one of these sequences and holds just its KV. Returns how many there are."""
        hasher = PrefixHasher(CONTEXT)
        right: dict[bytes, bytes] = {}
        for tokens in sequences:
            ids = np.array(tokens, dtype=np.int32)
            key = CacheKey(namespace=NAMESPACE, tokens=ids)
            hashes = hasher.prefixes(hasher.empty(0), ids)[1:]
            for i, name in enumerate(block_keys(FINGERPRINT, key, len(ids), self.block)):
                right[name] = hashes[i * self.block : (i + 1) * self.block].tobytes()
        for name, data in tier.blocks.items():
            assert right.get(name) == data
        return len(tier.blocks)
