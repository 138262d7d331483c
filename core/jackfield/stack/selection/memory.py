"""What was said of the worker's memory: a worker that would not heed it is refused, and is not sent it either."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from jackfield.config.dtype import resolve_kv_dtype
from jackfield.config.errors import ConfigurationError
from jackfield.config.server_args import ServerArgs
from jackfield.stack.discovery.catalogue import PluginRow
from jackfield.stack.selection.checks import manifest_of
from jackfield.stack.selection.choice import described

KV_DTYPE = "kv_dtype"
MEM_FRACTION = "mem_fraction"

_FEATURE_OF: Mapping[str, str] = MappingProxyType({"kv_cache_dtype": KV_DTYPE, "mem_fraction_static": MEM_FRACTION})
"""Field of `ServerArgs` -> the feature of a worker that heeds it, which is also the field of `WorkerContext`."""


def memory_fields(args: ServerArgs) -> dict[str, Any]:
    """What `WorkerContext` says of memory beyond the contract's minimum: nothing that nobody asked for. args: completed."""
    return {_FEATURE_OF[field]: value for field, value in _asked(args, args.dtype).items()}


def refuse_unheeded(args: ServerArgs, worker: PluginRow, dtype: str | None, source: Callable[[str], str]) -> None:
    """dtype: of the run, None while it is not known; source: field -> who gave it. Raises ConfigurationError."""
    for field, value in _asked(args, dtype).items():
        if _FEATURE_OF[field] not in manifest_of(worker).features:
            raise ConfigurationError(
                f"{source(field)}: {value} would have no effect, for {described(worker)} does not heed it (feature "
                f"{_FEATURE_OF[field]!r}); leave it out, or name another --worker"
            )


def _asked(args: ServerArgs, dtype: str | None) -> dict[str, Any]:
    """Field -> value, of those that ask for something."""
    asked = {
        "kv_cache_dtype": resolve_kv_dtype(args.kv_cache_dtype, dtype),
        "mem_fraction_static": args.mem_fraction_static,
    }
    return {field: value for field, value in asked.items() if value is not None}
