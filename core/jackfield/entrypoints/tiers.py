"""Makes the KV tiers of a run: the plugins, and the fingerprint under which their blocks may be found again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.plan import ReplicaPlan
from jackfield.hookspecs import KVTier, ModelWorker
from jackfield.managers.scheduler.tiers.blocks import block_tokens
from jackfield.managers.scheduler.tiers.store import TierSetup
from jackfield.stack.loading.load import LoadedStack

EVICTED = "evicted"
"""Feature of a cache: it tells what it evicts, slot by slot."""


def make_tiers(plan: ReplicaPlan, loaded: LoadedStack, worker: ModelWorker, *, threaded: bool) -> TierSetup | None:
    """None if no tier is named. Raises ConfigurationError if worker or cache cannot serve them."""
    rows = loaded.of("kv_tier")
    if not rows:
        return None
    mover = worker.mover()
    if mover is None:
        raise ConfigurationError(f"--kv-tier: {loaded.plugin('worker').selected.described} makes no copies of its KV")
    block = block_tokens(plan.args.kv_tier_block_tokens, worker.limits.page_size)
    tiers: list[tuple[str, KVTier]] = []
    for row in rows:
        tier: KVTier = row.make({"block_tokens": block, "block_bytes": block * mover.bytes_per_slot})
        cache = loaded.plugin("cache").selected
        if tier.rule.write == "back" and EVICTED not in cache.manifest.features:
            raise ConfigurationError(
                f"--kv-tier {row.selected.instance}: write-back needs to know what is evicted, and {cache.described} does "
                f"not tell (feature {EVICTED!r}); use write-through or another cache"
            )
        tiers.append((row.selected.key, tier))
    return TierSetup(
        mover=mover,
        tiers=tiers,
        fingerprint=model_fingerprint(plan, loaded, mover.layout),
        block_tokens=block,
        threaded=threaded,
    )


def model_fingerprint(plan: ReplicaPlan, loaded: LoadedStack, layout: str) -> bytes:
    """What KV depends on beside tokens and namespace: model files by name, size and time of change, configuration, loader
    and its options, dtype, the KV layout, and the seed, from which a loader may make its weights up. 32 bytes."""
    loader, worker = loaded.plugin("loader").selected, loaded.plugin("worker").selected
    told = {
        "files": _files(plan.model_path),
        "config": plan.facts.config.hf,
        "loader": [loader.name, loader.version, loader.options],
        "worker": [worker.name, worker.version],
        "dtype": plan.args.dtype,
        "layout": layout,
        "seed": None if loader.manifest.files else plan.seed,
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).digest()


def _files(path: Path) -> list[tuple[str, int, int]]:
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    stats = [(file.name if path.is_file() else str(file.relative_to(path)), file.stat()) for file in files]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
