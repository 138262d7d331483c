"""A child whose parent has died before it gave any orders."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path


def test_it_removes_the_runs_directory(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "main.sock").touch()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        arguments = ["detokenizer", str(os.getpid()), str(theirs.fileno()), str(directory)]
        child = subprocess.Popen(
            [sys.executable, "-m", "jackfield.entrypoints.child", *arguments], pass_fds=(theirs.fileno(),)
        )
    assert child.wait() == 1
    assert not directory.exists()
