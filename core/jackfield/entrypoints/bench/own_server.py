"""Our own server as a child process, for the time of a measurement."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

END_SECONDS = 60.0
"""How long a server may take to end after it was asked to; then it is killed, and that is told."""


@contextmanager
def served(flags: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Its address. flags: as `jackfield serve` takes them; environ: beside ours. What it says goes to our stderr. Raises
    RuntimeError if it does not come up, or does not end in order."""
    command = [sys.executable, "-m", "jackfield", "serve", *flags]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env={**os.environ, **environ}
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()  # the only one: it is up
        found = re.search(r"https?://\S+", line)
        if found is None:
            raise RuntimeError(f"the server did not come up (exit code {process.wait()}); it says above why")
        yield found.group()
    finally:
        # In order also when something failed: it has processes of its own to end.
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise RuntimeError(f"the server did not end within {END_SECONDS:g} s and was killed") from None
        finally:
            process.stdout.close()
