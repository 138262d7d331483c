"""What child processes find in their environment."""

from __future__ import annotations

from jackfield.entrypoints.child_process import child_environment


def test_keys_stay_in_the_main_process() -> None:
    given = {"JACKFIELD_API_KEY": "k", "JACKFIELD_ADMIN_API_KEY": "a", "HOME": "/home/me", "OMP_NUM_THREADS": "1"}
    found = child_environment(given, ["/a", "/b"])
    assert found == {"HOME": "/home/me", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "PYTHONPATH": "/a:/b"}


def test_a_wait_policy_of_the_operators_own_is_left_alone() -> None:
    assert child_environment({"OMP_WAIT_POLICY": "active"}, [])["OMP_WAIT_POLICY"] == "active"
