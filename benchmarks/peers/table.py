"""The page's tables, in Markdown, of what run.py wrote and, where it is given, of what accuracy.py wrote with --json.

    python benchmarks/peers/table.py results.json --accuracy accuracy.json
    python benchmarks/peers/table.py results.json --accuracy accuracy.json --write docs/benchmarks.md

The first prints them, the second puts them between the page's markers.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from plan import IMPORT_TORCH, Entry, Plan, read_plan  # noqa: E402
from ratios import Results, Spread, Verdict  # noqa: E402

BEGIN, END = "<!-- benchmarks/peers/table.py writes from here -->", "<!-- to here -->"

COLUMNS = {
    "decode": "decode, one request, tok/s",
    "prefill": "prefill 1,024, tok/s",
    "batch": "32 × 256 → 128, output tok/s",
    "prefix": "32 × (512 shared + 32) → 64, output tok/s",
    "first": "start to first token, s",
}

DISTURBED = "†"

_WORDS = {None: "not measured", True: "met", False: "**behind**"}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="what run.py wrote")
    parser.add_argument("--plan", type=Path, default=HERE / "plan.toml", help="the plan that it ran")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put them between the markers of this page")
    parser.add_argument("--accuracy", type=Path, metavar="FILE", help="what benchmarks/accuracy.py wrote")
    given = parser.parse_args(argv)
    text = tables(json.loads(given.results.read_text()), read_plan(given.plan, {}))
    if given.accuracy is not None:
        text += "\n\n" + accuracy(json.loads(given.accuracy.read_text()))
    if given.write is None:
        print(text)
        return 0
    page = given.write.read_text()
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        print(f"{given.write} needs a line {BEGIN} and, below it, a line {END}", file=sys.stderr)
        return 2
    before, _, rest = page.partition(BEGIN)
    given.write.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")
    return 0


def tables(told: Mapping[str, Any], plan: Plan) -> str:
    results = Results(told, plan)
    parts = [_facts(results), _speeds(results), _targets(results), *_notes(results)]
    return "\n\n".join(parts)


def accuracy(told: Mapping[str, Any]) -> str:
    """A row a figure, and one for each form that was refused."""
    rows = []
    for name, figure in told["results"].items():
        beside = f" ({figure['b'][0]:.4f})" if name == "bf16_perplexity" else ""
        word = _WORDS[figure["met"]] if figure["target"] else ""
        rows.append((figure["what"], f"{figure['value']:.4f}{beside}", figure["target"].replace("<=", "≤"), word))
    rows += [(form, "refused", "", _last_line(reason)) for form, reason in told["refused"].items()]
    return _markdown(("accuracy", "ratio", "wanted", ""), rows)


def _facts(results: Results) -> str:
    told, machine = results.told, results.told["machine"]
    records = [one for one in told["measurements"] if "error" not in one]
    read = Spread(tuple(one["read_gbps"] for one in told["measurements"]))
    versions = dict.fromkeys(f"{one['adapter']} {one['version']}" for one in records)
    manner = "a quick run, of few rounds" if told["quick"] else "one run"
    return (
        f"Measured {told['made_at'][:10]}, {manner} of {told['seconds'] / 60:.0f} minutes: {machine['cpu']}, "
        f"{machine['cores']} cores, {machine['threads']} threads; memory read at {_number(read.value)} GB/s "
        f"({_range(read)}). {', '.join(versions)}."
    )


def _speeds(results: Results) -> str:
    """A row for each entry that was measured; the best of each column is bold."""
    names = [entry.name for entry in results.plan.entries if any(_ran(results, entry, test) for test in COLUMNS)]
    best = {}
    for test in COLUMNS:
        medians = {name: spread.value for name in names if (spread := results.spread(name, test)) is not None}
        if medians:
            best[test] = (min if test == "first" else max)(medians, key=medians.__getitem__)
    rows = []
    for name in names:
        cells = [_cell(results, name, test, best.get(test) == name) for test in COLUMNS]
        rows.append((name, *cells, f"{_memory(results, name, 'decode')} / {_memory(results, name, 'batch')}"))
    return _markdown(("", *COLUMNS.values(), "peak memory, MiB, 1 / 32 requests"), rows)


def _ran(results: Results, entry: Entry, test: str) -> bool:
    return bool(results.records(entry.name, test))


def _cell(results: Results, name: str, test: str, bold: bool) -> str:
    spread = results.spread(name, test)
    if spread is None:
        return "failed" if results.records(name, test) else "–"
    mark = DISTURBED if any(one.get("disturbed") for one in results.records(name, test)) else ""
    number = _number(spread.value) + mark
    return (f"**{number}**" if bold else number) + (f" ({_range(spread)})" if len(spread.values) > 1 else "")


def _memory(results: Results, name: str, test: str) -> str:
    spread = results.spread(name, test, "peak_rss_mib")
    return "–" if spread is None else f"{spread.most:,.0f}"


def _targets(results: Results) -> str:
    rows = []
    for target in results.plan.targets:
        verdict = results.verdict(target)
        ratio = verdict.ratio
        wanted = f"{'≥' if target.at_least else '≤'} {target.wanted:g}" + (
            f", aim {target.aim:g}" if target.aim else ""
        )
        found = "–" if ratio is None else f"{ratio.value:.2f} ({ratio.least:.2f}–{ratio.most:.2f})"
        rows.append((_what(verdict), found, wanted, _WORDS[verdict.met]))
    return _markdown(("", "median of the rounds (least–most)", "wanted", ""), rows)


def _what(verdict: Verdict) -> str:
    target = verdict.target
    if target.memory:
        less = f", less what `{IMPORT_TORCH}` takes" if target.less else ""
        return f"memory at one request: {target.ours}{less}, over its weights"
    if target.over is None:
        return f"{target.test}: {target.ours}" + (", seconds" if target.test == "first" else ", tok/s")
    over = target.over if verdict.over == target.over else f"{target.over} ({verdict.over or 'none was measured'})"
    return f"{target.test}: {target.ours} over {over}"


def _notes(results: Results) -> Iterator[str]:
    told = results.told
    if any(one.get("disturbed") for one in told["measurements"]):
        yield f"{DISTURBED} Others used the machine during a round, and each try of it; the calmest counts."
    stacks = dict.fromkeys(
        (one["entry"], one["stack"]["hash"][:12])
        for one in told["measurements"]
        if "stack" in one and one["test"] != "first"
    )
    if stacks:
        yield "Stacks: " + ", ".join(f"{name} `{digest}`" for name, digest in stacks) + "."
    failures = {one["entry"]: one["error"] for one in told["measurements"] if "error" in one}
    if failures:
        yield "Failed: " + "; ".join(f"{name} ({_last_line(error)})" for name, error in failures.items()) + "."
    if told["left_out"]:
        yield "Not installed where this was measured: " + ", ".join(told["left_out"]) + "."


def _last_line(error: str) -> str:
    return error.strip().splitlines()[-1].strip().removeprefix("- ").replace("|", "/")


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _range(spread: Spread) -> str:
    return f"{_number(spread.least)}–{_number(spread.most)}"


def _number(value: float) -> str:
    """Three figures or so."""
    return f"{value:,.0f}" if value >= 200 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main())
