"""Resolution: sizes of recorded graphs that somebody named are used, or the start is refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jackfield.config.device import DeviceDescription
from jackfield.config.errors import ConfigurationError
from jackfield.config.server_args import ServerArgs
from jackfield.hookspecs import Pooling
from jackfield.stack.discovery.catalogue import Catalogue
from jackfield.stack.resolved import ModelFacts
from jackfield.stack.selection.resolution import resolve
from tests.unit.stack.catalogues import CPU, catalogue, facts, row

GPU = DeviceDescription(type="cuda", name="A GPU", available_memory=1, total_memory=1, cores=1, capability=(9, 0))
NEEDS = ("attention", "ops", "model", "loader")
WORKER = row("worker", "real", priority=20, needs=NEEDS, features=("graph", "pooling"))
ALL = (
    WORKER,
    row("attention", "fast", priority=99, features=("graph",)),
    row("ops", "fast", priority=99, features=("graph",)),
)


def refused(rows: Catalogue, device: DeviceDescription = GPU, model: ModelFacts | None = None, **args: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        resolve(
            ServerArgs(**args), device, model or facts(), rows, {"cuda_graph_bs": "environment JACKFIELD_CUDA_GRAPH_BS"}
        )
    return str(caught.value)


def test_they_are_used_where_everybody_takes_part() -> None:
    found = resolve(ServerArgs(cuda_graph_bs=(4, 1, 4)), GPU, facts(), catalogue(*ALL))
    assert found.args.cuda_graph_bs == (4, 1, 4)


@pytest.mark.parametrize("without", range(3))
def test_whoever_takes_no_part_is_named(without: int) -> None:
    other = replace(WORKER, manifest=replace(WORKER.manifest, features=())) if WORKER.manifest else WORKER
    rows = catalogue(
        *(other if one is WORKER and not without else one for i, one in enumerate(ALL) if i != (without or 9))
    )
    told = refused(rows, cuda_graph_max_bs=8)
    assert told.startswith("--cuda-graph-max-bs: 8 would have no effect: ")
    assert ("worker plugin 'real'", "attention plugin 'torch'", "ops plugin 'torch'")[without] in told
    assert told.endswith("takes part in no recorded step (feature 'graph'); leave it out")
    resolve(ServerArgs(disable_cuda_graph=True), GPU, facts(), rows)  # that is so in any case


def test_a_cpu_and_a_run_that_pools_have_none() -> None:
    told = refused(catalogue(*ALL), CPU, cuda_graph_bs=(1, 2))
    assert told == (
        "--cuda-graph-bs (from environment JACKFIELD_CUDA_GRAPH_BS): 1 2 would have no effect: this run is on a CPU (a test), "
        "which has no recorded graphs; leave it out"
    )
    pooling = replace(facts(), pooling=Pooling(kind="embedding", width=8))
    assert "a run that does not generate has no decode steps" in refused(
        catalogue(*ALL), model=pooling, cuda_graph_bs=(1,)
    )


def test_sizes_that_no_batch_reaches_are_refused() -> None:
    told = refused(catalogue(*ALL), cuda_graph_bs=(16, 10**20), max_running_requests=8)
    assert (
        "16 100000000000000000000 would have no effect: at most 8 requests run at once (--max-running-requests)" in told
    )
    for args in ({"cuda_graph_bs": (4, 900)}, {"cuda_graph_max_bs": 10**20}):
        resolve(ServerArgs(**args, max_running_requests=8), GPU, facts(), catalogue(*ALL))
