"""What can keep a healthy plugin from serving a run: the lists of its manifest against what the run asks for."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence

from jackfield.config.errors import either
from jackfield.stack.discovery.catalogue import PluginRow
from jackfield.stack.discovery.manifest import ManifestRow


def manifest_of(row: PluginRow) -> ManifestRow:
    """The manifest of a healthy row. Raises ValueError for another."""
    if row.manifest is None:
        raise ValueError(f"{row.kind} {row.name!r} has no manifest: {row.problem}")
    return row.manifest


def device_problems(row: PluginRow, device: str, reason: str = "") -> list[str]:
    """An empty list in the manifest means: any device. reason: why the run is on this one."""
    devices = manifest_of(row).devices
    if not devices or device in devices:
        return []
    return [f"it runs on {either(devices)}, this run is on {device}{f' ({reason})' if reason else ''}"]


def dtype_problems(row: PluginRow, dtype: str | None) -> list[str]:
    """An empty list in the manifest means: any dtype. None: the run's dtype is not known yet."""
    dtypes = manifest_of(row).dtypes
    if dtype is None or not dtypes or dtype in dtypes:
        return []
    return [f"it computes in {either(dtypes)}, this run in {dtype} (--dtype)"]


def feature_problems(row: PluginRow, wanted: Iterable[str], who: str) -> list[str]:
    """Features that `who` asks for and the manifest does not list."""
    lacking = sorted(set(wanted) - set(manifest_of(row).features))
    return [f"{who} needs {' and '.join(repr(name) for name in lacking)}, which it does not offer"] if lacking else []


def cache_problems(row: PluginRow, cache: ManifestRow) -> list[str]:
    """What a schedule policy needs and the cache of the run does not list."""
    lacking = sorted(set(manifest_of(row).needs) - set(cache.features))
    return [f"it needs {need!r}, which cache {cache.name!r} does not offer" for need in lacking]


def file_problems(row: PluginRow, file: str, names: Sequence[str], *, named: bool) -> list[str]:
    """Whether a loader recognises the model files. One without patterns recognises none and must be named."""
    patterns = manifest_of(row).files
    if not patterns:
        return (
            [] if named else [f"it recognises no file by itself: it is used only when named (--load-format {row.name})"]
        )
    if any(fnmatch.fnmatch(name, pattern) for name in names for pattern in patterns):
        return []
    return [f"it reads {either(patterns)}, and {file} is or holds no such file"]
