"""Entry point of the KV tier `host`."""

from __future__ import annotations

from jackfield.hookspecs import KVTier, KVTierContext, hookimpl


@hookimpl
def jackfield_kv_tier(context: KVTierContext) -> KVTier:
    from jackfield_cache_tiers.host_tier import HostTier
    from jackfield_cache_tiers.options import HostOptions

    options = context.options or HostOptions()
    if not isinstance(options, HostOptions):
        raise TypeError(f"kv_tier.{context.instance} wants HostOptions, got {type(options).__name__}")
    return HostTier(options)
