"""`jackfield explain`: what a run with these flags would be made of, and why. Starts and fetches nothing, imports no plugin."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jackfield.config.device import DeviceDescription, describe_device
from jackfield.config.errors import ConfigurationError
from jackfield.config.flags import add_server_args, parse_server_args
from jackfield.config.names import PluginUse
from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.cli.output import as_written, print_json, print_table
from jackfield.hub.huggingface import ID
from jackfield.hub.locate import FILE_ENDINGS, locate_model
from jackfield.stack.diagnosis.inspection import check_options_in_child
from jackfield.stack.digest import stack_hash
from jackfield.stack.discovery.catalogue import Catalogue
from jackfield.stack.discovery.scan import discover
from jackfield.stack.lock import differences, lock_document, read_lock
from jackfield.stack.report import stack_report, topology_report
from jackfield.stack.resolved import ModelFacts
from jackfield.stack.selection.choice import source_text
from jackfield.stack.selection.facts import gather_model_facts
from jackfield.stack.selection.probes import probe_in_child
from jackfield.stack.selection.resolution import Resolution, resolve


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "explain",
        help="show what a run would be made of, and why",
        description="Show the arguments, the plugin stack with the reason for each choice and rejection, the processes "
        "and the stack hash of a run with these flags. Nothing is started or fetched.",
    )
    parser.add_argument("--json", action="store_true", help="write JSON")
    add_server_args(parser)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explained:
    """What a run would be. digest: the stack's hash; None while the model is not here, and a part of the stack is open."""

    resolution: Resolution
    device: DeviceDescription
    facts: ModelFacts | None
    digest: str | None


def resolution_of(args: ServerArgs, provenance: Mapping[str, str], catalogue: Catalogue) -> Explained:
    """Everything that a start decides before it loads anything, without importing a plugin here.

    Raises ConfigurationError as the start would.
    """
    device = describe_device(args.device)
    # Names first, as at a start: a misspelt plugin is told before a child process looks at the model.
    resolve(args, device, None, catalogue, provenance, prober=probe_in_child)
    facts = _facts(args, provenance, device, catalogue)
    resolution = resolve(args, device, facts, catalogue, provenance, prober=probe_in_child)
    check_options_in_child(resolution.stack)
    digest = None if facts is None else stack_hash(resolution.stack)
    return Explained(resolution=resolution, device=device, facts=facts, digest=digest)


def run(namespace: argparse.Namespace) -> int:
    args, provenance = parse_server_args(namespace, os.environ)
    explained = resolution_of(args, provenance, discover(files=args.plugin))
    changed = _differences(args, provenance, explained)
    show = _report_json if namespace.json else _show
    show(explained, changed)
    return ConfigurationError.exit_code if changed else 0


def _differences(args: ServerArgs, provenance: Mapping[str, str], explained: Explained) -> list[str] | None:
    """What `--locked` would refuse; None if nothing is locked."""
    if args.locked is None:
        return None
    source = source_text("locked", provenance)
    locked = read_lock(args.locked, source)
    if explained.facts is None:
        raise ConfigurationError(f"{source}: the model is not on this machine, so that nothing can be compared")
    return differences(locked, lock_document(explained.resolution, explained.facts))


def _facts(
    args: ServerArgs, provenance: Mapping[str, str], device: DeviceDescription, catalogue: Catalogue
) -> ModelFacts | None:
    """Facts of the model if it is on this machine; a hub id's files may not be."""
    if args.model_path is None:
        return gather_model_facts(args, None, catalogue, isolate=True, device=device, provenance=provenance)
    path = Path(args.model_path).expanduser()
    if not path.exists() and ID.fullmatch(args.model_path) and not args.model_path.lower().endswith(FILE_ENDINGS):
        return None
    located = locate_model(args.model_path, revision=args.revision, progress=False)
    return gather_model_facts(
        args, located.path, catalogue, isolate=True, device=device, name=located.name, provenance=provenance
    )


def _report_json(explained: Explained, changed: list[str] | None) -> None:
    resolution = explained.resolution
    filled = resolution.args.public_dump()
    print_json(
        {
            "args": filled,
            # A change's value is the argument's, in JSON as all of them.
            "changes": [dataclasses.asdict(change) | {"after": filled[change.field]} for change in resolution.changes],
            "stack": stack_report(resolution.stack, stack_hash=explained.digest),
            "topology": topology_report(resolution.topology),
            "device": dataclasses.asdict(explained.device),
            "notes": list(resolution.notes),
            "locked": None
            if changed is None
            else {"file": str(resolution.args.locked), "same": not changed, "differences": changed},
        }
    )


def _show(explained: Explained, changed: list[str] | None) -> None:
    resolution, device, digest = explained.resolution, explained.device, explained.digest
    stack = resolution.stack
    print_table(
        ("ARGUMENT", "VALUE", "RULE"),
        [(change.field, _shown(change.after), change.rule) for change in resolution.changes],
        title="Arguments that were filled in",
    )
    print_table(
        ("KIND", "PLUGIN", "FOR", "DISTRIBUTION", "OPTIONS", "REASON"),
        [
            (
                plugin.kind,
                plugin.name if plugin.name == plugin.instance else f"{plugin.name} as {plugin.instance}",
                " and ".join(plugin.phases) or "-",
                plugin.origin,
                ", ".join(f"{key}={as_written(value)}" for key, value in plugin.options.items()) or "-",
                plugin.reason,
            )
            for plugin in stack.plugins
        ],
        title="Plugins of the stack",
    )
    print_table(
        ("KIND", "PLUGIN", "DISTRIBUTION", "REASON"),
        [(rejected.kind or "-", rejected.name or "-", rejected.origin, rejected.reason) for rejected in stack.rejected],
        title="Installed plugins that were not chosen",
    )
    processes = resolution.topology.processes
    print_table(
        ("PROCESS", "RANK"),
        [(plan.role, "-" if plan.rank is None else str(plan.rank.world_rank)) for plan in processes],
        title=f"Processes ({resolution.topology.mode})",
    )
    facts = [("device", f"{device.type}, {device.cores} cores: {device.reason}")]
    if stack.layout is not None:
        facts.append(("KV layout", f"{stack.layout.name}: {stack.layout_reason}"))
    if stack.weights is not None:
        facts.append(("weights", f"{stack.weights.name}: {stack.weights.reason}"))
    facts.append(("worker on a thread of its own", stack.worker_thread_reason))
    facts.append(("stack hash", digest or "open until the model is here"))
    facts.extend(("note", note) for note in resolution.notes)
    print_table(("FACT", "VALUE"), facts, title="Run")
    if changed is not None:
        title = f"Lock {resolution.args.locked}: " + (
            "a start would be refused" if changed else "this is the locked run"
        )
        print_table(("DIFFERENCE",), [(text,) for text in changed], title=title)


def _shown(value: Any) -> str:
    """A list of plugins by the names of their instances; anything else as it is."""
    uses = isinstance(value, tuple) and all(isinstance(one, PluginUse) for one in value)
    return ", ".join(use.instance for use in value) if uses else str(value)
