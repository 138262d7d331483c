"""Entry point of the cache plugin `chunk`."""

from __future__ import annotations

from jackfield.hookspecs import CacheContext, PrefixCache, hookimpl


@hookimpl
def jackfield_prefix_cache(context: CacheContext) -> PrefixCache:
    from jackfield_cache_prefix.chunk_cache import ChunkCache

    return ChunkCache(page_size=context.page_size)
