"""The page of what works with what, from the results in compatibility.json (`make compatibility` renews them). Runs nothing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from jackfield.hookspecs import KINDS
from jackfield.stack.discovery.scan import discover

RESULTS = Path(__file__).parent / "compatibility.json"
KINDS_OF_A_RUN = ("attention", "model", "cache", "kv_tier", "event_loop", "schedule_policy")
SUITES = {
    "attention": "What models may ask of an attention backend: windows, soft caps, several kinds of layers and the like.",
    "model": "What a model does, against the transformers library.",
}


def results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


def compatibility() -> Iterator[str]:
    found = results()
    yield "# What works with what\n"
    yield (
        "Results, not promises: of `jackfield conformance` on a CPU (kernels of another device in their language's interpreter), "
        "and of runs of whole stacks on a small random model, "
        "whose greedy tokens and log-probabilities must be those of the transformers library. `make compatibility` renews them.\n"
    )
    yield "## Plugins\n"
    yield "`not claimed`: its manifest does not say so, and it was not asked. `not here`: the machine lacked it.\n"
    yield _row(["plugin", "version", "contract", "conformance", "checks passed", "not claimed", "not here"])
    yield "|---" * 7 + "|"
    for plugin in found["plugins"]:
        contract = ", ".join(f"{name} {version}" for name, version in plugin["contract"].items())
        counts = [_count(plugin["checks"], outcome) for outcome in ("passed", "not claimed", "not here")]
        name = f"`{plugin['kind']}.{plugin['name']}`"
        yield f"| {name} | {plugin['version']} | {contract} | {_outcome(plugin)} | {' | '.join(map(str, counts))} |"
    yield ""
    for kind, told in SUITES.items():
        yield f"## {kind.capitalize()}, by check\n"
        yield f"{told}\n"
        yield from _by_check([plugin for plugin in found["plugins"] if plugin["kind"] == kind])
    yield "## Whole stacks\n"
    yield (
        f"{len(found['runs'])} stacks, chosen so that every two settings meet. A number says how many of them had both plugins, "
        "all with the reference's answers; `refused`: the start says what the one needs of the other; `differs`: an answer was "
        "wrong.\n"
    )
    single = {kind: names[0] for kind in KINDS_OF_A_RUN if len(names := _names(found["runs"], kind)) == 1}
    if single:
        told = " and ".join(f"{kind} `{name}`" for kind, name in single.items())
        yield f"Every run has {told}: there is no other yet. So what runs with them is all that stands here.\n"
    yield "`not run`: nobody has tried the two together.\n"
    for rows, columns in itertools.combinations([kind for kind in KINDS_OF_A_RUN if kind not in single], 2):
        yield from _pairs(found["runs"], rows, columns)


def _outcome(plugin: dict[str, Any]) -> str:
    """With the device, where it is no CPU."""
    device, unshown = plugin.get("device", "cpu"), plugin.get("dtypes_not_here", ())
    if device == "cpu":
        return str(plugin["outcome"])
    told = f"; {', '.join(unshown)} not shown" if unshown else ""
    return f"{plugin['outcome']} ({device}{told})"


def _count(checks: dict[str, dict[str, int]], outcome: str) -> int:
    return sum(outcomes.get(outcome, 0) for outcomes in checks.values())


def _by_check(plugins: list[dict[str, Any]]) -> Iterator[str]:
    yield _row(["check", *(f"`{plugin['name']}`" for plugin in plugins)])
    yield "|---" * (len(plugins) + 1) + "|"
    for check in dict.fromkeys(check for plugin in plugins for check in plugin["checks"]):
        cells = [_told(plugin["checks"].get(check, {})) for plugin in plugins]
        yield _row([check.replace("_", " "), *cells])
    yield ""


def _told(outcomes: dict[str, int]) -> str:
    """In a cell: the worst that happened."""
    for outcome in ("failed", "cannot run", "passed", "not here", "not claimed"):
        if outcome in outcomes:
            return "yes" if outcome == "passed" else outcome
    return ""


def _pairs(runs: list[dict[str, Any]], rows: str, columns: str) -> Iterator[str]:
    lines, heads = _names(runs, rows), _names(runs, columns)
    yield f"### {rows} and {columns}\n"
    if len(heads) > len(lines):
        rows, columns, lines, heads = columns, rows, heads, lines
    yield _row(["", *(f"`{head}`" if head else "none" for head in heads)])
    yield "|---" * (len(heads) + 1) + "|"
    for line in lines:
        cells = []
        for head in heads:
            met = [run["same"] for run in runs if run.get(rows, "") == line and run.get(columns, "") == head]
            cells.append(str(len(met)) if met and all(met) else "differs" if met else _unmet(rows, line, columns, head))
        yield _row([f"`{line}`" if line else "none", *cells])
    yield ""


def _names(runs: list[dict[str, Any]], kind: str) -> list[str]:
    return sorted({run.get(kind, "") for run in runs})


def _unmet(rows: str, line: str, columns: str, head: str) -> str:
    """Why no run had both: a need that the other does not meet, or nobody tried."""
    for kind, name, other, its_name in ((rows, line, columns, head), (columns, head, rows, line)):
        if kind == "schedule_policy" and other == "cache":
            policy, cache = _manifest(kind, name), _manifest(other, its_name)
            if set(policy.needs) - set(cache.features):
                return "refused"
    return "not run"


def _manifest(kind: str, name: str) -> Any:
    (row,) = [row for row in discover().rows(kind) if row.name == name]
    return row.manifest


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def out_of_date(found: dict[str, Any], present: Iterable[Any]) -> list[str]:
    """What the results say of other plugins or versions than the present rows of the catalogue; [] if nothing."""
    there = {(row["kind"], row["name"]): row for row in found["plugins"]}
    now = {(row.kind, row.name): row for row in present}
    problems = [f"{kind}.{name} has no results" for kind, name in sorted(now.keys() - there.keys())]
    problems += [f"{kind}.{name} is not there any more" for kind, name in sorted(there.keys() - now.keys())]
    for (kind, name), row in sorted(now.items()):
        if result := there.get((kind, name)):
            versions = {
                "version": row.version,
                "contract": dict(row.manifest.contract),
                "core_contract": KINDS[kind].contract_version,
            }
            problems += [
                f"{kind}.{name}: {what} is {value}, and was {result[what]} when the results were made"
                for what, value in versions.items()
                if result[what] != value
            ]
    return problems
