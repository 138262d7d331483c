"""How long commands take to start, and how much memory the first token takes.

    python benchmarks/startup.py [--json] [--rounds N] [--wait SECONDS] [--only REGEX]

The commands that only look are told as multiples of `python -c 'import pydantic'`, the first token of `jackfield generate` as a
multiple of `python -c 'import torch'`, without which it cannot be had. One after the other in turn (A B C D, A B C D, ...), so
that a machine that gets slower does so for all; medians of wall and of CPU time, children included. Bytecode is compiled, as in
an installation, and the packed weights are kept, as after a first start. Wanted: `--help` 3, `plugins list` 3, `explain` 6 (the
embedded model, no plugin named); a first token within 3 s.

Peak memory (the process's largest resident set) of 128 tokens for one request, beside that of `import torch`, in the weights' own
size: `--quantization none` keeps them in bfloat16, 2 bytes each. Wanted: 3 times the weights in bfloat16, and in the file's own
packed form `import torch` + 2 times the file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from machine import machine_facts

from jackfield.config import embedded
from jackfield.stack.digest import package_digest

BASE, TORCH = "import pydantic", "import torch"

RUN = "import sys; from jackfield.entrypoints.cli import main; sys.exit(main(sys.argv[1:]))"
"""What the installed script `jackfield` does."""

GENERATE = [
    "-c",
    RUN,
    "generate",
    "--device",
    "cpu",
    "--dtype",
    "bfloat16",
    "--temperature",
    "0",
    "--quiet",
    "--ignore-eos",
]
PROMPT = "The capital of France is"

COMMANDS = {
    BASE: ["-c", BASE],
    "--help": ["-c", RUN, "--help"],
    "plugins list": ["-c", RUN, "plugins", "list"],
    "explain": ["-c", RUN, "explain", "--device", "cpu"],
    TORCH: ["-c", TORCH],
    "first_token": [*GENERATE, "--max-new-tokens", "1", PROMPT],
    "first_token bf16": [*GENERATE, "--quantization", "none", "--max-new-tokens", "1", PROMPT],
}

WANTED = {"--help": (BASE, 3.0), "plugins list": (BASE, 3.0), "explain": (BASE, 6.0)}
TOLD = {"first_token": TORCH, "first_token bf16": TORCH}
FIRST_TOKEN_SECONDS = 3.0

MEMORY = {
    TORCH: ["-c", TORCH],
    "bf16": [*GENERATE, "--quantization", "none", "--max-new-tokens", "128", " ".join([PROMPT] * 24)],
    "packed": [*GENERATE, "--max-new-tokens", "128", " ".join([PROMPT] * 24)],
}
"""Name -> what is run for its peak."""

PARAMETERS = 134_515_008
"""Of SmolLM2-135M, the tied head once."""

WEIGHTS = {"bf16": 2 * PARAMETERS, "packed": embedded.GGUF_BYTES}


@dataclass(frozen=True)
class Run:
    """wall, cpu: seconds; peak: bytes of the largest resident set."""

    wall: float
    cpu: float
    peak: int


def once(words: list[str], environ: dict[str, str]) -> Run:
    """One run, waited for by itself, so that its own use is told."""
    began = time.perf_counter()
    child = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, env=environ)
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, words)
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def environment(bytecode: str) -> dict[str, str]:
    """This one without settings of runs, and with bytecode that is compiled once."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JACKFIELD_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "PYTHONPYCACHEPREFIX": bytecode}


def memory(environ: dict[str, str]) -> dict[str, dict[str, float]]:
    """Peaks; the ratio is to the weights, and for packed ones of what comes on top of `import torch`."""
    peaks = {name: once(words, environ).peak for name, words in MEMORY.items()}
    return {
        TORCH: {"peak_mib": peaks[TORCH] / 2**20},
        "bf16": {"peak_mib": peaks["bf16"] / 2**20, "ratio": peaks["bf16"] / WEIGHTS["bf16"], "wanted": 3.0},
        "packed": {
            "peak_mib": peaks["packed"] / 2**20,
            "ratio": (peaks["packed"] - peaks[TORCH]) / WEIGHTS["packed"],
            "wanted": 2.0,
        },
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    parser.add_argument("--rounds", type=int, default=15, help="runs of each (default 15)")
    parser.add_argument("--wait", type=float, default=60.0, help="longest wait for a quiet machine (default 60)")
    parser.add_argument(
        "--only", default="", metavar="REGEX", help="commands whose names hold this; `memory` for the peaks"
    )
    given = parser.parse_args(argv)
    machine = machine_facts(given.wait)
    chosen = {name for name in (*WANTED, *TOLD) if re.search(given.only, name)}
    bases = {
        base for name, base in (*TOLD.items(), *((name, base) for name, (base, _) in WANTED.items())) if name in chosen
    }
    commands = {name: words for name, words in COMMANDS.items() if name in chosen | bases}
    with tempfile.TemporaryDirectory() as bytecode:
        environ = environment(bytecode)
        for words in commands.values():  # bytecode, the disk's cache, packed weights
            once(words, environ)
        runs: dict[str, list[Run]] = {name: [] for name in commands}
        for _ in range(given.rounds):
            for name, words in commands.items():
                runs[name].append(once(words, environ))
        peaks = memory(environ) if re.search(given.only, "memory") else {}
    wall = {name: statistics.median(run.wall for run in made) for name, made in runs.items()}
    cpu = {name: statistics.median(run.cpu for run in made) for name, made in runs.items()}
    results: dict[str, dict[str, float]] = {}
    for name in commands:
        base, wanted = WANTED.get(name, (TOLD.get(name), None))
        if base is None:
            continue
        results[name] = {"ratio": wall[name] / wall[base], "cpu_ratio": cpu[name] / cpu[base]}
        if wanted is not None:
            results[name]["wanted"] = wanted
        else:
            results[name] |= {"seconds": wall[name], "wanted_seconds": FIRST_TOKEN_SECONDS}
    if given.json:
        told = {
            "machine": machine,
            "packages": {"jackfield": package_digest("jackfield")},
            "seconds": wall,
            "cpu_seconds": cpu,
            "results": results,
            "memory": peaks,
        }
        json.dump(told, sys.stdout, indent=2)
        print()
        return 0
    for name, figures in results.items():
        base = TOLD.get(name, BASE)
        aim = (
            f"{figures['wanted']:.0f}"
            if "wanted" in figures
            else f"{FIRST_TOKEN_SECONDS:.0f} s, is {figures['seconds']:.2f} s"
        )
        print(
            f"{name:18} {figures['ratio']:5.2f} times `{base}` ({figures['cpu_ratio']:.2f} in CPU time), wanted: {aim}"
        )
    for name, figures in peaks.items():
        more = (
            f", {figures['ratio']:.2f} times the weights, wanted: {figures['wanted']:.0f}" if "ratio" in figures else ""
        )
        print(f"{'memory ' + name:18} {figures['peak_mib']:5.0f} MiB{more}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
