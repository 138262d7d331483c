"""What the contract asks of every plugin of kind routes, and what the page's headers promise."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from jackfield.testing.conformance import RoutesConformance
from jackfield_routes_playground.routes import HEADERS

PARTS = {part.name: part.read_text() for part in files("jackfield_routes_playground").joinpath("page").iterdir()}


class TestPlayground(RoutesConformance):
    plugin = "playground"


def test_the_page_may_load_its_own_parts_alone() -> None:
    policy = dict(rule.split(" ", 1) for rule in HEADERS["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert policy["frame-ancestors"] == "'none'"


@pytest.mark.parametrize("name", PARTS)
def test_a_part_names_nothing_of_another_server_and_writes_no_markup(name: str) -> None:
    text = PARTS[name].replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//cdn", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\son\w+=", text)
    for asked in re.findall(r"/playground/([\w.]+)", text) + re.findall(r'from "\./([\w.]+)"', text):
        assert asked in PARTS
