"""How many bytes the KV pool may take: arithmetic over what was free before the weights and is free behind them, what the
largest step was seen to take, and the share that the operator named. Knows no pages, models or torch."""

from __future__ import annotations

from dataclasses import dataclass

CPU_SHARE = 0.2  # of the memory that the weights leave: the machine has other uses for it
CPU_MOST_TOKENS = 65536  # more is rarely used on a CPU, and costs start-up time and memory all the same
DEVICE_FRACTION = 0.9  # of an accelerator's free memory, for weights and KV
STEP_MARGIN = 1.25  # recorded decode steps have memory of their own, and what an allocator keeps is in pieces


@dataclass(frozen=True, kw_only=True)
class Room:
    """most         bytes that a pool may take
    share        bytes that a pool of no named size may take, at most `most`
    most_tokens  of such a pool; None: no limit
    why          where `most` comes from, for messages
    """

    most: int
    share: int
    most_tokens: int | None
    why: str


def room_for_kv(*, device: str, host: bool, before: int, free: int, step: int, fraction: float | None) -> Room:
    """device: its name; host: it is the machine itself; before, free: bytes free before the weights were loaded, and now; step:
    bytes that the largest step takes beside the weights, 0: unknown; fraction: `WorkerContext.mem_fraction`."""
    kept = int(STEP_MARGIN * step)
    beside = max(0, free - kept)
    why = f"{device} has {gib(free)} free beside the weights"
    if kept:
        why += f", of which steps need {gib(kept)}"
    if fraction is None and host:
        return Room(most=beside, share=int(CPU_SHARE * beside), most_tokens=CPU_MOST_TOKENS, why=why)
    within = max(0, free - int((1 - (fraction or DEVICE_FRACTION)) * before))
    if fraction is None:
        return Room(most=beside, share=min(within, beside), most_tokens=None, why=why)
    why += f", and --mem-fraction-static {fraction:g} leaves {gib(within)} of {gib(before)} for KV"
    return Room(most=min(within, beside), share=min(within, beside), most_tokens=None, why=why)


def gib(count: int) -> str:
    """Bytes in words."""
    return f"{count / 2**30:.2f} GiB" if count >= 2**27 else f"{count / 2**20:.2f} MiB"
