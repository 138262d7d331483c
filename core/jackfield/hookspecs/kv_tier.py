"""Kind `kv_tier`: a slower store of KV behind the prefix cache. It keeps blocks of bytes under keys and knows nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from jackfield.hookspecs.common import PluginContext
from jackfield.hookspecs.markers import hookspec


@dataclass(frozen=True, kw_only=True)
class TierRule:
    """When the core uses a tier.

    write             "through": a block is copied to the tier when it enters the prefix cache; "back": when it is evicted
                      from it, which asks for a cache with the feature "evicted"
    write_after       through: only blocks that so many requests have had in their prompt; 1: all
    min_load_tokens   a request waits for a load only if it brings at least so many tokens
    """

    write: Literal["through", "back"] = "through"
    write_after: int = 1
    min_load_tokens: int = 64

    def __post_init__(self) -> None:
        if self.write not in ("through", "back") or self.write_after < 1 or self.min_load_tokens < 1:
            raise ValueError(f"not a rule for a tier: {self}")


@dataclass(frozen=True, kw_only=True)
class TierUse:
    """blocks and bytes that a tier holds, and the bytes that it may hold."""

    blocks: int
    bytes: int
    capacity: int


class KVTier(ABC):
    """Blocks under keys. A key (32 bytes) stands for the tokens of the block and of all before it, the namespace, the
    model and the layout, so equal keys mean equal bytes. What was put may be forgotten at any time.

    `has` and `use` are called by the scheduler's thread and must neither block nor do I/O; all else is called by one
    other thread and may block. What raises is counted as a miss, and a tier that goes on raising is switched off.

    rule   when the core uses it; set it in `__init__` if options decide
    """

    rule: TierRule = TierRule()

    @abstractmethod
    def has(self, key: bytes) -> bool:
        """Whether `get` would probably find it."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """The block, `KVTierContext.block_bytes` long; None: not here (any more)."""

    @abstractmethod
    def put(self, key: bytes, block: bytes) -> None:
        """Keep a block, and forget others where there is no room."""

    @abstractmethod
    def clear(self) -> None:
        """The cache is flushed. A tier that is meant to outlast that keeps what it has."""

    @abstractmethod
    def use(self) -> TierUse:
        """What it holds now."""

    def close(self) -> None:
        """The run ends."""
        return None


@dataclass(frozen=True, kw_only=True)
class KVTierContext(PluginContext):
    """block_tokens: tokens a block, whole pages; block_bytes: its size."""

    block_tokens: int
    block_bytes: int


class KVTierSpecs:
    @hookspec
    def jackfield_kv_tier(self, context: KVTierContext) -> KVTier:  # type: ignore[empty-body]
        """Make the tier.

        Process: scheduler. When: once at start, after the worker. Cost: any; a store on disk may read its index. Example:

            @hookimpl
            def jackfield_kv_tier(context: KVTierContext) -> KVTier:
                from my_package.tier import MyTier

                return MyTier(context.options, context.block_bytes)
        """
