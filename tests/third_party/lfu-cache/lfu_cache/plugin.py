"""Cache `lfu`."""

from __future__ import annotations

from jackfield.hookspecs import CacheContext, PrefixCache, hookimpl
from lfu_cache.options import LfuOptions


@hookimpl
def jackfield_prefix_cache(context: CacheContext) -> PrefixCache:
    from lfu_cache.cache import LfuCache

    if not isinstance(context.options, LfuOptions):
        raise TypeError(f"options of another plugin: {context.options!r}")
    return LfuCache(context.options, context.page_size)
