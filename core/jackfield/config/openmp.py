"""What OpenMP, and so torch, has to find in the environment before torch is imported. It knows no torch and sets nothing.

A thread of OpenMP's that waits spins, and takes its core from whoever computes beside it: a second pool of threads, or another
process of the replica. And OpenMP starts a thread for each core that it sees, which is more than a container may use where
a quota, and not an affinity, bounds that: then most of them wait for the few that run.
"""

from __future__ import annotations

from collections.abc import Mapping

from jackfield.config.cgroup import cgroup_limits
from jackfield.config.device import affine_cores, usable_cores


def openmp_defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables to be added; what is set there already is the user's and stays as it is."""
    wanted = {"OMP_WAIT_POLICY": "passive"}
    quota = cgroup_limits().cores
    if quota is not None and quota < affine_cores():
        wanted["OMP_NUM_THREADS"] = str(usable_cores())
    return {name: value for name, value in wanted.items() if name not in environment}
