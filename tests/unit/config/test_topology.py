"""Ranks and processes: F21, the bijection between a world rank and its coordinates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.config.server_args import ServerArgs
from jackfield.config.topology import Rank, derive_topology, make_topology

SIZE = st.integers(1, 6)


@given(SIZE, SIZE, SIZE)
def test_world_ranks_and_coordinates_are_a_bijection(dp: int, pp: int, tp: int) -> None:
    topology = make_topology("processes", dp_size=dp, pp_size=pp, tp_size=tp)
    assert topology.world_size == dp * pp * tp
    assert [rank.world_rank for rank in topology.ranks] == list(range(topology.world_size))
    assert len({(rank.dp_rank, rank.pp_rank, rank.tp_rank) for rank in topology.ranks}) == topology.world_size
    for rank in topology.ranks:
        offset = rank.dp_rank * pp * tp
        assert rank.world_rank == offset + tp * rank.pp_rank + rank.tp_rank
        assert topology.world_rank(dp_rank=rank.dp_rank, pp_rank=rank.pp_rank, tp_rank=rank.tp_rank) == rank.world_rank


@given(SIZE, SIZE, SIZE)
def test_every_rank_lives_in_one_process_and_every_replica_has_one_scheduler(dp: int, pp: int, tp: int) -> None:
    topology = make_topology("processes", dp_size=dp, pp_size=pp, tp_size=tp)
    homes = [process.rank for process in topology.processes if process.rank is not None]
    assert homes == list(topology.ranks)
    schedulers = [process.rank for process in topology.processes if process.role == "scheduler"]
    assert [(rank.dp_rank, rank.pp_rank, rank.tp_rank) for rank in schedulers if rank] == [(i, 0, 0) for i in range(dp)]
    assert [process.role for process in topology.processes if process.rank is None] == ["main", "detokenizer"]


@pytest.mark.parametrize("sizes", [(0, 1, 1), (1, 0, 1), (1, 1, -1)])
def test_a_size_below_one_is_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        make_topology("processes", dp_size=sizes[0], pp_size=sizes[1], tp_size=sizes[2])


def test_a_coordinate_outside_its_size_is_refused() -> None:
    topology = make_topology("processes", dp_size=1, pp_size=2, tp_size=2)
    with pytest.raises(ValueError, match="pp_rank 2"):
        topology.world_rank(dp_rank=0, pp_rank=2, tp_rank=0)


def test_the_topology_of_the_arguments() -> None:
    only = Rank(world_rank=0, dp_rank=0, pp_rank=0, tp_rank=0)
    processes = derive_topology(ServerArgs(topology="processes"))
    assert [process.role for process in processes.processes] == ["main", "scheduler", "detokenizer"]
    assert derive_topology(ServerArgs()) == processes
    inline = derive_topology(ServerArgs(topology="inline"))
    assert [(process.role, process.rank) for process in inline.processes] == [("inline", only)]


def test_inline_holds_one_rank_and_modes_are_known() -> None:
    with pytest.raises(ValueError, match="one rank"):
        make_topology("inline", dp_size=1, pp_size=1, tp_size=2)
    with pytest.raises(ValueError, match="mode"):
        make_topology("threads", dp_size=1, pp_size=1, tp_size=1)
