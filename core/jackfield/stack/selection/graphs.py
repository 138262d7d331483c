"""Sizes of recorded graphs that somebody named: a start in which no step could use one is refused.

Without names nothing is: whether there are graphs then is the worker's business, which says in its report why there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jackfield.config.device import DeviceDescription
from jackfield.config.errors import ConfigurationError
from jackfield.config.server_args import ServerArgs
from jackfield.hookspecs import Pooling
from jackfield.hookspecs.common import GRAPH
from jackfield.stack.discovery.catalogue import PluginRow
from jackfield.stack.selection.checks import manifest_of
from jackfield.stack.selection.choice import described

_FIELDS = ("cuda_graph_bs", "cuda_graph_max_bs")


def refuse_unused_sizes(
    args: ServerArgs,
    device: DeviceDescription,
    pooling: Pooling | None,
    rows: Iterable[PluginRow],
    source: Callable[[str], str],
) -> None:
    """rows: the worker, and the plugins of its decode steps; source: field -> who gave it. Raises ConfigurationError."""
    for field in _FIELDS:
        value = getattr(args, field)
        if value and (why := _why_none(device, pooling, rows)):
            raise ConfigurationError(f"{source(field)}: {_told(value)} would have no effect: {why}; leave it out")


def refuse_large_sizes(args: ServerArgs, source: Callable[[str], str]) -> None:
    """args: completed. Raises ConfigurationError where no batch ever has so many rows."""
    most = args.max_running_requests
    if args.cuda_graph_bs and most is not None and min(args.cuda_graph_bs) > most:
        raise ConfigurationError(
            f"{source('cuda_graph_bs')}: {_told(args.cuda_graph_bs)} would have no effect: at most {most} requests run at once "
            "(--max-running-requests); name smaller sizes, or allow more requests"
        )


def _why_none(device: DeviceDescription, pooling: Pooling | None, rows: Iterable[PluginRow]) -> str:
    if pooling is not None:
        return "a run that does not generate has no decode steps"
    if device.type == "cpu":
        reason = f" ({device.reason})" if device.reason else ""
        return f"this run is on a CPU{reason}, which has no recorded graphs"
    lacking = [described(row) for row in rows if GRAPH not in manifest_of(row).features]
    return f"{lacking[0]} takes part in no recorded step (feature {GRAPH!r})" if lacking else ""


def _told(value: int | tuple[int, ...]) -> str:
    return str(value) if isinstance(value, int) else " ".join(map(str, value))
