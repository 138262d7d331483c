"""Processes and ranks of a run, derived from the arguments by pure arithmetic. Starts nothing, opens nothing."""

from __future__ import annotations

from dataclasses import dataclass

from jackfield.config.server_args import ServerArgs

SERVING = "processes"
"""What `jackfield serve` runs unless told otherwise."""


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One model-holding rank. `dp_rank` is its replica; `world_rank` numbers all ranks of the run."""

    world_rank: int
    dp_rank: int
    pp_rank: int
    tp_rank: int


@dataclass(frozen=True, kw_only=True)
class ProcessPlan:
    """One process. role: "inline" (all in one), "main", "scheduler" (its first rank's worker lives in it), "worker"
    or "detokenizer"; rank: the rank whose worker it holds, None if none."""

    role: str
    rank: Rank | None = None


@dataclass(frozen=True, kw_only=True)
class Topology:
    """mode: "inline" or "processes". The sizes are positive and `ranks` is in the order of world ranks."""

    mode: str
    dp_size: int
    pp_size: int
    tp_size: int
    processes: tuple[ProcessPlan, ...]
    ranks: tuple[Rank, ...]

    @property
    def world_size(self) -> int:
        return self.dp_size * self.pp_size * self.tp_size

    def world_rank(self, *, dp_rank: int, pp_rank: int, tp_rank: int) -> int:
        """offset + tp_size * pp_rank + tp_rank, where a replica's offset is its number times its ranks.

        Raises ValueError for a coordinate outside its size.
        """
        for name, rank, size in (
            ("dp", dp_rank, self.dp_size),
            ("pp", pp_rank, self.pp_size),
            ("tp", tp_rank, self.tp_size),
        ):
            if not 0 <= rank < size:
                raise ValueError(f"{name}_rank {rank} is not in 0 .. {size - 1}")
        return self.pp_size * self.tp_size * dp_rank + self.tp_size * pp_rank + tp_rank


def make_topology(mode: str, *, dp_size: int, pp_size: int, tp_size: int) -> Topology:
    """Raises ValueError for a size below 1, an unknown mode, or several ranks in one process."""
    for name, size in (("dp_size", dp_size), ("pp_size", pp_size), ("tp_size", tp_size)):
        if size < 1:
            raise ValueError(f"{name} must be at least 1, not {size}")
    if mode not in ("inline", "processes"):
        raise ValueError(f"the mode is 'inline' or 'processes', not {mode!r}")
    ranks = tuple(
        Rank(world_rank=(dp * pp_size + pp) * tp_size + tp, dp_rank=dp, pp_rank=pp, tp_rank=tp)
        for dp in range(dp_size)
        for pp in range(pp_size)
        for tp in range(tp_size)
    )
    if mode == "inline":
        if len(ranks) > 1:
            raise ValueError(f"one process holds one rank, not {len(ranks)}")
        processes: tuple[ProcessPlan, ...] = (ProcessPlan(role="inline", rank=ranks[0]),)
    else:
        # A replica's first rank lives in its scheduler's process, so that one rank needs no process of its own.
        models = [
            ProcessPlan(role="worker" if rank.pp_rank or rank.tp_rank else "scheduler", rank=rank) for rank in ranks
        ]
        processes = (ProcessPlan(role="main"), *models, ProcessPlan(role="detokenizer"))
    return Topology(mode=mode, dp_size=dp_size, pp_size=pp_size, tp_size=tp_size, processes=processes, ranks=ranks)


def derive_topology(args: ServerArgs) -> Topology:
    """The topology that these arguments ask for; the server's if they name none."""
    return make_topology(args.topology or SERVING, dp_size=args.dp_size, pp_size=args.pp_size, tp_size=args.tp_size)
