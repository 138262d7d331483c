from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

from jackfield.ipc.run_directory import LONGEST_PATH, RunDirectory, remove_stale, socket_path


def test_it_is_private_and_its_sockets_paths_fit() -> None:
    directory = RunDirectory.create()
    try:
        assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
        for name in ("main", "scheduler", "detokenizer"):
            assert len(os.fsencode(socket_path(directory.path, name))) <= LONGEST_PATH
    finally:
        directory.remove()
    assert not directory.path.exists()
    directory.remove()


def test_a_deep_directory_for_temporary_files_is_not_used_for_sockets(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 80)
    deep.mkdir()
    script = "from jackfield.ipc.run_directory import RunDirectory as R; d = R.create(); print(d.path); d.remove()"
    told = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TMPDIR": str(deep)},
        text=True,
        capture_output=True,
        check=True,
    )
    assert len(told.stdout.strip()) < 60


def test_two_runs_leave_each_others_alone(tmp_path: Path) -> None:
    first = RunDirectory.create(tmp_path)
    second = RunDirectory.create(tmp_path)
    assert first.path != second.path
    assert first.path.is_dir()
    assert remove_stale(tmp_path) == []
    first.remove()
    assert second.path.is_dir()
    second.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_removed_by_the_next_start(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from jackfield.ipc.run_directory import RunDirectory as R\n"
        "d = R.create(pathlib.Path(sys.argv[1])); (d.path / 'main.sock').touch(); print(d.path, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        left = Path(run.stdout.readline().strip())
        mine = RunDirectory.create(tmp_path)
        assert left.is_dir()
        run.send_signal(signal.SIGKILL)
        run.wait()
    other = RunDirectory.create(tmp_path)
    assert not left.exists()
    assert mine.path.is_dir()
    mine.remove()
    other.remove()


def test_links_and_foreign_names_are_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (tmp_path / "jackfield-1-link").symlink_to(precious)
    (tmp_path / "jackfield-1-file").touch()
    (tmp_path / "other-1-x").mkdir()
    assert remove_stale(tmp_path) == []
    assert precious.is_dir()
