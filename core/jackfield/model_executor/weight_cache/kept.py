"""Packed weights of one load: taken from the cache where it has them, else packed and put there.

A failure of the cache costs time and never the load: it is told in a warning, and from then on nothing is kept.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import Ops, Shard, WorkerStack
from jackfield.model_executor.weight_cache.directory import CacheDirectory, Unfinished
from jackfield.model_executor.weight_cache.packed_file import Damaged, PackedFile

logger = logging.getLogger(__name__)

FORM = 2
"""Of the names and the order of what is put there: raise it when `FusedLinear` puts other things under the same name."""

LEAST_BYTES = 8 * 2**20
"""Of a model's files: smaller ones are packed in no time."""


class KeptWeights:
    """What `jackfield.layers.linear` asks for packed weights and gives new ones. One load, one thread.

    unchanged          whether the model's files are still those of the key
    stored, restored   how many weights so far
    """

    def __init__(
        self, directory: CacheDirectory, key: Mapping[str, Any], ops: Ops, unchanged: Callable[[], bool] = lambda: True
    ) -> None:
        self._directory = directory
        self._key = dict(key)
        self._ops = ops
        self._unchanged = unchanged
        self._found: PackedFile | None = directory.open(self._key)
        self._unfinished: Unfinished | None = None
        self._off = False
        self._saver: threading.Thread | None = None
        self._taken: list[str] = []
        self.stored = self.restored = 0

    def take(self, name: str) -> Any | None:
        """A packed weight out of the cache; None: it must be packed, and then be put."""
        if self._found is None or name not in self._found:
            return None
        try:
            header, data = self._found.section(name)
            packed = self._ops.restore(header, data)
        except Exception:
            logger.warning("the packed weight of %s cannot be restored and is packed anew", name, exc_info=True)
            return None
        self._taken.append(name)
        if self._unfinished is not None:
            self._add(name, header, data)
        self.restored += 1
        return packed

    def put(self, name: str, packed: Any) -> None:
        """Keep what was packed, if the operators export it."""
        if self._off:
            return
        exported = self._ops.export(packed)
        if exported is None:
            return
        if not self._add(name, *exported):
            return
        self.stored += 1
        assert self._unfinished is not None
        if self._unfinished.writer.written > self._directory.max_bytes:
            logger.info("the packed weights take more than --weight-cache-size allows, so they are not kept")
            self._stop()

    def finish(self) -> None:
        """Everything is loaded. Syncing with the disk may take seconds, so it goes on beside whatever comes next."""
        self._found = None
        if self._unfinished is not None and not self._unchanged():
            logger.warning("the model's files changed while they were loaded, so the packed weights are not kept")
            self._stop()
        if self._unfinished is not None:
            # Not a daemon: a short run waits for it at its end, rather than make it all again the next time.
            self._saver = threading.Thread(target=self._save, name="weight-cache")
            self._saver.start()

    def drop(self) -> None:
        """The load failed."""
        self._found = None
        self._stop()

    def wait(self) -> None:
        """Until what `finish` began is done."""
        if self._saver is not None:
            self._saver.join()

    def _add(self, name: str, header: Mapping[str, Any], data: NDArray[np.uint8]) -> bool:
        try:
            if self._unfinished is None:
                self._unfinished = self._directory.begin(self._key)
                # The new file holds all: also what was found in one that lacked something.
                for taken in self._taken:
                    assert self._found is not None
                    self._unfinished.writer.add(taken, *self._found.section(taken))
            self._unfinished.writer.add(name, header, data)
        except (OSError, TypeError, Damaged) as error:
            self._give_up(error)
            return False
        return True

    def _save(self) -> None:
        assert self._unfinished is not None
        try:
            size = self._unfinished.finish()
        except OSError as error:
            self._give_up(error)
            return
        logger.info("packed weights are kept for the next start: %.1f MiB in %s", size / 2**20, self._directory.path)

    def _give_up(self, error: Exception) -> None:
        logger.warning("packed weights are not kept in %s: %s", self._directory.path, error)
        self._stop()

    def _stop(self) -> None:
        self._off = True
        if self._unfinished is not None:
            self._unfinished.drop()
            self._unfinished = None


def _identities(files: Sequence[Path]) -> list[tuple[int, ...]]:
    told = [file.stat() for file in files]
    return [(one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in told]


def kept_weights(stack: WorkerStack, *, ops: Ops, shard: Shard, device: str, dtype: str) -> KeptWeights | None:
    """None where nothing can be kept: no cache, operators that export nothing, a source that names no files."""
    cache, files = stack.weight_cache, stack.source.files()
    if cache is None or type(ops).export is Ops.export or not files:
        return None
    try:
        size = sum(file.stat().st_size for file in files)
        if size < LEAST_BYTES:
            return None
        if size > cache.max_bytes:
            logger.info("the model is larger than --weight-cache-size allows, so its packed weights are not kept")
            return None
        cache.directory.mkdir(parents=True, exist_ok=True)
        before = _identities(files)
        key = {
            "form": FORM,
            "files": [cache.digest(file) for file in files],
            "owner": cache.owner,
            "packing": ops.packing(),
            "device": device,
            "dtype": dtype,
            "encodings": sorted(stack.ops_encodings),
            "packed_only": stack.packed_only,  # else what another run decoded would be taken where that is refused
            "quantization": stack.quantization,
            "shard": [shard.tp_rank, shard.tp_size, shard.pp_rank, shard.pp_size],
        }
        return KeptWeights(
            CacheDirectory(cache.directory, cache.max_bytes),
            key,
            ops,
            lambda: _identities(files) == before,
        )
    except OSError as error:
        logger.warning("packed weights are not kept in %s: %s", cache.directory, error)
        return None
