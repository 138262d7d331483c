"""The stack hash: one SHA-256 by which processes, benchmarks and logs know that they speak of the same running code.

Read from the bytes that this process would import. No ports, paths, reasons or secrets go in; versions neither, because
they lie for editable installs. Imports no plugin.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.discovery.plugin_file import Unreadable
from jackfield.stack.loading.files import file_digest
from jackfield.stack.resolved import ResolvedStack, SelectedPlugin

CORE_PACKAGE = "jackfield"
_SUFFIXES = frozenset({".py", ".toml", ".so"})


def stack_hash(stack: ResolvedStack) -> str:
    """SHA-256 (hex) over contract versions, the core's content and, per plugin in stack order, kind, name, instance,
    options and content. The plugin that serves prefill stands before the one that serves decode.

    Raises ConfigurationError if a selected package is not importable here.
    """
    document = {
        "contracts": {kind.name: kind.contract_version for kind in KINDS.values()},
        "core": package_digest(CORE_PACKAGE),
        "plugins": [
            {
                "kind": plugin.kind,
                "name": plugin.name,
                "instance": plugin.instance,
                "options": plugin.options,
                "content": plugin_digest(plugin),
            }
            for plugin in stack.plugins
        ],
    }
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), default=_canonical)
    return hashlib.sha256(canonical.encode()).hexdigest()


def plugin_digest(plugin: SelectedPlugin) -> str:
    """Content digest of the plugin's package, or of its one file as it is now. Raises ConfigurationError."""
    if plugin.path is None:
        return package_digest(plugin.package)
    try:
        return file_digest(plugin.path)
    except Unreadable as error:
        raise ConfigurationError(
            f"the file {plugin.path} of a selected plugin cannot be loaded here: {error}"
        ) from error


@cache
def package_digest(package: str) -> str:
    """Content digest of a top-level import package, found as `import` would find it. Cached for the process.

    Raises ConfigurationError if it is not found.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ConfigurationError(f"the package {package} of a selected plugin cannot be imported here")
    return content_digest(*(Path(location) for location in spec.submodule_search_locations))


def content_digest(*folders: Path) -> str:
    """Digest of every .py, .toml and .so file under the folders: sorted relative path and bytes, lengths between them."""
    files = sorted(
        (path.relative_to(folder).as_posix(), path)
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix in _SUFFIXES and path.is_file()
    )
    digest = hashlib.sha256()
    for relative, path in files:
        content = path.read_bytes()
        digest.update(f"{len(relative.encode())}:{relative}:{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def _canonical(value: Any) -> str:
    # TOML knows dates and times; everything else that an option may be is JSON.
    return f"{type(value).__name__}:{value}"
