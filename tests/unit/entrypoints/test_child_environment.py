"""What child processes find in their environment."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from jackfield.config import device, openmp
from jackfield.config.cgroup import CgroupLimits
from jackfield.entrypoints.child_process import child_environment


def test_keys_stay_in_the_main_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openmp, "cgroup_limits", CgroupLimits)
    given = {"JACKFIELD_API_KEY": "k", "JACKFIELD_ADMIN_API_KEY": "a", "HOME": "/home/me", "OMP_NUM_THREADS": "1"}
    found = child_environment(given, ["/a", "/b"])
    assert found == {"HOME": "/home/me", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "PYTHONPATH": "/a:/b"}


def test_a_wait_policy_of_the_operators_own_is_left_alone() -> None:
    assert child_environment({"OMP_WAIT_POLICY": "active"}, [])["OMP_WAIT_POLICY"] == "active"


@pytest.mark.parametrize(
    ("quota", "threads"), [(None, None), (3.0, "3"), (2.5, "2"), (0.5, "1"), (8.0, None), (64.0, None)]
)
def test_openmp_starts_no_more_threads_than_a_quota_allows(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, threads: str | None
) -> None:
    monkeypatch.setattr(device, "affine_cores", lambda: 8)
    monkeypatch.setattr(openmp, "affine_cores", lambda: 8)
    for module in (device, openmp):
        monkeypatch.setattr(module, "cgroup_limits", lambda: CgroupLimits(cores=quota))
    assert openmp.openmp_defaults({}).get("OMP_NUM_THREADS") == threads
    assert openmp.openmp_defaults({"OMP_NUM_THREADS": "7", "OMP_WAIT_POLICY": "active"}) == {}


@pytest.mark.parametrize("given", [None, "active"])
def test_an_inline_engine_lets_openmp_threads_sleep_unless_the_user_decides(given: str | None) -> None:
    code = (
        "import os, sys; from jackfield import Engine\n"
        "with Engine(worker='simulated', skip_tokenizer_init=True, max_total_tokens=64): print(os.environ['OMP_WAIT_POLICY'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if given is not None:
        environment["OMP_WAIT_POLICY"] = given
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == [given or "passive"]
