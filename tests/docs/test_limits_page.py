"""The table of limits in docs/security.md names every setting that limits a request, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from jackfield.config.fields import facts_of
from jackfield.config.limit_fields import LimitFields
from jackfield.config.server_args import ServerArgs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
OF_THE_RUN = {"--max-queued-requests", "--context-length", "--max-total-tokens"}
"""They say how large the server is, and so limit requests as well."""


def test_the_table_of_limits_is_complete() -> None:
    section = PAGE.read_text().split("## What a request can cost")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `--")]
    told = [flag for row in rows for flag in re.findall(r"`(--[a-z-]+)`", row.split("|")[1])]
    assert len(set(told)) == len(told)
    assert set(told) == {facts.flag for facts in facts_of(LimitFields).values()} | OF_THE_RUN
    assert {facts.flag for facts in facts_of(ServerArgs).values()} >= OF_THE_RUN
