"""The page of clients is about the tests of today, and has nothing that does not work."""

from __future__ import annotations

import re
from pathlib import Path

from docs.clients_page import results

TESTS = Path(__file__).resolve().parents[1] / "e2e" / "clients"
MARK = re.compile(r'@pytest.mark.client\((?:"([^"]+)"|([A-Z]+)), "([^"]+)"\)')


def test_it_has_what_the_tests_run() -> None:
    marked = set()
    for file in TESTS.glob("test_*.py"):
        text = file.read_text()
        named = dict(re.findall(r'^([A-Z]+) = "([^"]+)"$', text, re.MULTILINE))
        found = [(client or named[constant], feature) for client, constant, feature in MARK.findall(text)]
        assert len(found) == text.count("pytest.mark.client("), file
        marked.update(found)
    assert {(one["client"], one["feature"]) for one in results()} == marked, "run `make clients`"


def test_all_of_it_works() -> None:
    assert [one for one in results() if one["outcome"] != "works"] == []
