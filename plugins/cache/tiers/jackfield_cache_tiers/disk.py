"""Entry point of the KV tier `disk`."""

from __future__ import annotations

from jackfield.hookspecs import KVTier, KVTierContext, hookimpl


@hookimpl
def jackfield_kv_tier(context: KVTierContext) -> KVTier:
    from jackfield_cache_tiers.disk_tier import DiskTier
    from jackfield_cache_tiers.options import DiskOptions

    options = context.options or DiskOptions()
    if not isinstance(options, DiskOptions):
        raise TypeError(f"kv_tier.{context.instance} wants DiskOptions, got {type(options).__name__}")
    if options.path is None:
        raise ValueError(f"it needs a directory: --option kv_tier.{context.instance}.path=DIR")
    return DiskTier(options, options.path, context.block_bytes)
