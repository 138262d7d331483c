"""Entry point of the KV tier `disk`."""

from __future__ import annotations

from jackfield.hookspecs import KVTier, KVTierContext, hookimpl


@hookimpl
def jackfield_kv_tier(context: KVTierContext) -> KVTier:
    from jackfield_cache_tiers.disk_tier import DiskTier
    from jackfield_cache_tiers.options import DiskOptions

    options = context.options
    if not isinstance(options, DiskOptions):
        raise TypeError(f"kv_tier.{context.instance} wants DiskOptions, got {type(options).__name__}")
    return DiskTier(options, context.block_bytes)
