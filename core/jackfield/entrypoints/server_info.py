"""The body of `/server_info`: arguments, stack, numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from jackfield import __version__
from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.monitor import Monitor
from jackfield.managers.tokenizer_manager import TokenizerManager
from jackfield.stack.epochs import StackEpochs
from jackfield.stack.report import stack_report
from jackfield.stack.resolved import Resolution


class Replica(Protocol):
    """What is told of a running replica of any topology. processes: (role, pid)."""

    args: ServerArgs
    resolution: Resolution
    stacks: StackEpochs
    monitor: Monitor

    @property
    def stack_hash(self) -> str: ...

    @property
    def tokenizer_manager(self) -> TokenizerManager: ...

    @property
    def failure(self) -> BaseException | None: ...

    @property
    def processes(self) -> Sequence[tuple[str, int]]: ...


def error_text(error: BaseException) -> str:
    """Type and message in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _part(state: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The fields that begin so, without their beginning."""
    return {field.removeprefix(prefix): value for field, value in state.items() if field.startswith(prefix)}


def _tiers(state: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Tier instance -> its numbers; and, under "", those of loads and copies. Empty without tiers."""
    tiers: dict[str, dict[str, int]] = {}
    for field, value in state.items():
        if field.startswith("tier_"):
            tier, _, number = field.removeprefix("tier_").partition("_")
            tiers.setdefault(tier, {})[number] = value
    return tiers


def policy_info(stacks: StackEpochs, epoch: int | None = None) -> dict[str, Any]:
    """The schedule policy that runs, or that of an epoch that was heard of, and the stack that it is part of."""
    epoch, stack, digest = stacks.now if epoch is None else stacks.at(epoch)
    running = stack.one("schedule_policy")
    assert running is not None
    return {
        "name": running.name,
        "options": dict(running.options),
        "distribution": running.distribution,
        "version": running.version,
        "reason": running.reason,
        "stack_hash": digest,
        "stack_epoch": epoch,
    }


def server_info(replica: Replica, state: Mapping[str, Any]) -> dict[str, Any]:
    """state: the data of the scheduler's answer to a StateRequest."""
    epoch, stack, digest = replica.stacks.now
    return {
        "version": __version__,
        "args": replica.args.public_dump(),
        "stack": stack_report(stack, stack_hash=digest, epoch=epoch),
        "scheduler": {
            name: state[name]
            for name in ("running", "waiting", "steps", "last_step_age_s", "retractions", "new_token_ratio")
        },
        "kv": {
            **{name: state[f"kv_{name}"] for name in ("total", "free", "evictable", "protected", "pending", "held")},
            "bytes_per_slot": replica.tokenizer_manager.limits.kv_bytes_per_slot,
        },
        "kv_window": _part(state, "window_"),
        "kv_tiers": _tiers(state),
        "worker": _part(state, "worker_"),
        "sessions": replica.tokenizer_manager.sessions.numbers(),
        "faults": replica.monitor.faults(),
        "failure": None if replica.failure is None else error_text(replica.failure),
        "processes": [{"role": role, "pid": pid} for role, pid in replica.processes],
    }
