"""From the start of a process to its first token: `jackfield generate` as a process, as somebody would start it.

Measured from outside, from before the process is made to the first byte on its stdout: the interpreter, imports, the choice of
the stack, loading and the prompt are all in it. The files are in the system's cache: the first start, which is not counted, sees
to that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from jackfield.entrypoints.bench.offline import Tell
from jackfield.entrypoints.bench.usage import MIB
from jackfield.entrypoints.bench.workloads import WARM_UP, Workload

LAST_WORDS = 2000
"""Characters of what a process said on stderr that are repeated when it fails."""


def measure(work: Workload, vocab_size: int, flags: Sequence[str], repeat: int, tell: Tell) -> list[dict[str, Any]]:
    """flags: of the run, as `generate` takes them. Raises RuntimeError with what a process said that failed."""
    tell("starts", 0, repeat + 1)
    rounds = []
    for number in (WARM_UP, *range(repeat)):
        (prompt,) = work.prompts(number, vocab_size)
        rounds.append({"round": number} | one_start(prompt, flags))
        tell("starts", len(rounds), repeat + 1)
    return rounds[1:]


def one_start(prompt: Sequence[int], flags: Sequence[str]) -> dict[str, Any]:
    """first_token_s and wall_s (to the end of the process), and what it used, its children included as far as it waited for
    them. Raises RuntimeError."""
    words = ["--input-ids", ",".join(map(str, prompt)), "--max-new-tokens", "1", "--temperature", "0", "--ignore-eos"]
    command = [sys.executable, "-m", "jackfield", "generate", *words, "--quiet", *flags]
    with tempfile.TemporaryFile() as said:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said)
        assert process.stdout is not None
        try:
            # Unbuffered: the first byte is seen when it comes.
            text = os.read(process.stdout.fileno(), 1)
            first = time.perf_counter() - began
            while text and os.read(process.stdout.fileno(), 1 << 16):
                continue
            # wait4 and not Popen.wait: it tells what this one process used.
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            process.stdout.close()
        wall = time.perf_counter() - began
        if process.returncode or not text:
            said.seek(0, os.SEEK_END)
            said.seek(max(0, said.tell() - LAST_WORDS))
            last = said.read().decode(errors="replace").strip()
            raise RuntimeError(f"`jackfield generate` ended with {process.returncode} and no token: {last}")
    scale = 1 if sys.platform == "darwin" else 1024
    return {
        "first_token_s": first,
        "wall_s": wall,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_rss_mib": round(scale * used.ru_maxrss / MIB, 1),
    }
