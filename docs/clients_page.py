"""The page of clients and what of them works, from the results in clients.json (`make clients` renews them). Runs nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "clients.json"


def results() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(RESULTS.read_text())["results"]
    return found


def clients() -> Iterator[str]:
    found = results()
    yield "# Clients\n"
    yield (
        "Results, not promises: each line is a test that ran the unchanged client against a real server (`tests/e2e/clients`). "
        "`make clients` runs all of them and renews this page; the clients of the extra `clients` run there alone, the others "
        "with every run of the tests. Lines without a version send what a client sends, without the client.\n"
    )
    for client in dict.fromkeys(one["client"] for one in found):
        lines = [one for one in found if one["client"] == client]
        yield f"## {client}{' ' + lines[0]['version'] if lines[0]['version'] else ''}\n"
        yield "| feature | outcome |\n|---|---|"
        for one in lines:
            yield f"| {one['feature']} | {one['outcome']} |"
        yield ""
