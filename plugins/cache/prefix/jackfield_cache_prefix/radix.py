"""Entry point of the cache plugin `radix`."""

from __future__ import annotations

from jackfield.hookspecs import CacheContext, PrefixCache, hookimpl


@hookimpl
def jackfield_prefix_cache(context: CacheContext) -> PrefixCache:
    from jackfield_cache_prefix.options import RadixOptions
    from jackfield_cache_prefix.radix_cache import RadixCache

    options = context.options or RadixOptions()
    if not isinstance(options, RadixOptions):
        raise TypeError(f"cache.{context.instance} wants RadixOptions, got {type(options).__name__}")
    return RadixCache(
        page_size=context.page_size,
        eviction=options.eviction,
        events=context.events,
        evicted=context.evicted,
        window=context.window,
    )
