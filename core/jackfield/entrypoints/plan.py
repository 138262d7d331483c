"""What a start has decided before any part of it is made: the same for either topology. Reads; starts nothing."""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jackfield.config.device import describe_device
from jackfield.config.server_args import ServerArgs
from jackfield.hub.locate import locate_model
from jackfield.stack.discovery.scan import discover
from jackfield.stack.lock import check_locked
from jackfield.stack.resolved import ModelFacts, ResolvedStack
from jackfield.stack.selection.choice import source_text
from jackfield.stack.selection.facts import gather_model_facts
from jackfield.stack.selection.resolution import Resolution, resolve

log = logging.getLogger(__name__)

MAX_RUNNING_REQUESTS = 256
"""Most requests at once when nothing else is said; more rows cost memory for their tables and win little on one device."""


@dataclass(frozen=True, kw_only=True)
class ReplicaPlan:
    """args: as resolved, with the run's seed; model_path: where the model lies on this machine. All of it is data."""

    args: ServerArgs
    model_path: Path
    facts: ModelFacts
    stack: ResolvedStack

    @property
    def seed(self) -> int:
        assert self.args.random_seed is not None
        return self.args.random_seed

    @property
    def model_name(self) -> str:
        return self.args.served_model_name or self.facts.name


def with_topology(
    args: ServerArgs, provenance: Mapping[str, str] | None, default: Literal["processes", "inline"], why: str
) -> tuple[ServerArgs, dict[str, str]]:
    """The arguments with a topology: the one that was named, else `default`, whose origin is `why`."""
    origins = dict(provenance or {})
    if args.topology is None:
        origins["topology"] = why
        args = args.model_copy(update={"topology": default})
    return args, origins


def make_plan(args: ServerArgs, provenance: Mapping[str, str] | None = None) -> tuple[ReplicaPlan, Resolution]:
    """Find the model, fetching it if need be, and resolve the stack.

    Raises ConfigurationError for whatever cannot be had as asked.
    """
    had_torch = "torch" in sys.modules
    catalogue = discover(files=args.plugin)
    device = describe_device(args.device)
    # Names are checked before anything is fetched: a misspelt plugin must not cost a download.
    resolve(args, device, None, catalogue, provenance)
    located = locate_model(args.model_path, revision=args.revision, download_dir=args.download_dir)
    facts = gather_model_facts(
        args, located.path, catalogue, isolate=False, device=device, name=located.name, provenance=provenance
    )
    resolution = resolve(args, device, facts, catalogue, provenance)
    if args.locked is not None:
        check_locked(args.locked, resolution, facts, source_text("locked", provenance or {}))
    seed = secrets.randbits(63) if args.random_seed is None else args.random_seed
    args = resolution.args.model_copy(update={"random_seed": seed})
    logging.getLogger("jackfield").setLevel(args.log_level.upper())
    for note in resolution.notes:
        log.info("%s", note)
    if "torch" in sys.modules and not had_torch:
        # The contract forbids it (a model's `shape` module, a loader and a probe import no torch), and it costs seconds
        # and memory in a process that computes nothing.
        log.warning("a plugin of the stack imported torch while the model was looked at; its author should know")
    return ReplicaPlan(args=args, model_path=located.path, facts=facts, stack=resolution.stack), resolution
