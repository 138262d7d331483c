"""Where a replica's worker may keep packed weights, and whose work they are. Creates nothing."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path

from jackfield.config.errors import ConfigurationError
from jackfield.config.names import AUTO, NONE
from jackfield.config.server_args import ServerArgs
from jackfield.hookspecs import WeightCache
from jackfield.hub.cache_directory import cache_directory
from jackfield.hub.file_digests import file_digest
from jackfield.stack.digest import content_digest, plugin_digest
from jackfield.stack.resolved import SelectedPlugin

log = logging.getLogger(__name__)

FOLDER = "weights"
LAYERS = "jackfield.layers"
"""The core's own part: it decodes weights and puts them together before they are packed. Not imported here."""


def weight_cache(args: ServerArgs, ops: SelectedPlugin, loader: SelectedPlugin) -> WeightCache | None:
    """None with `--weight-cache-dir none`, and where the user has no cache directory, which is no reason not to run."""
    if args.weight_cache_dir == NONE:
        return None
    if args.weight_cache_dir == AUTO:
        try:
            directory = cache_directory(None) / FOLDER
        except ConfigurationError as error:
            log.info("packed weights are not kept: %s", error)
            return None
    else:
        directory = Path(args.weight_cache_dir).absolute()

    def digest(path: Path) -> str:
        return file_digest(path, directory)

    # Versions lie for editable installs, so the bytes of the code count.
    owner = [
        f"{plugin.distribution} {plugin.version} {plugin.name} {plugin_digest(plugin)}" for plugin in (ops, loader)
    ]
    spec = importlib.util.find_spec(LAYERS)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    owner.append(content_digest(*map(Path, spec.submodule_search_locations)))
    return WeightCache(
        directory=directory, max_bytes=int(args.weight_cache_size * 2**30), owner="; ".join(owner), digest=digest
    )
