"""A limit on the steps of a template's loops, counted and not timed, so that it is the same on every machine.

The sandbox limits a single `range`; loops inside loops it does not, and a thread that runs one cannot be stopped from
outside. So the iterable of each loop is wrapped, in the syntax tree, in a counter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jinja2
from jinja2 import nodes


class _Budget:
    def __init__(self, steps: int) -> None:
        self.left = steps


_budget: ContextVar[_Budget] = ContextVar("jackfield_template_budget")


@contextmanager
def loop_budget(steps: int) -> Iterator[None]:
    """The loops of templates that are rendered inside may take so many steps together; then they raise TemplateError."""
    token = _budget.set(_Budget(steps))
    try:
        yield
    finally:
        _budget.reset(token)


def meter_loops(environment: jinja2.Environment, tree: nodes.Template) -> None:
    """Change the tree so that each step of a loop is counted."""
    environment.jackfield_counted = _counted  # type: ignore[attr-defined]
    for loop in list(tree.find_all(nodes.For)):
        counter = nodes.EnvironmentAttribute("jackfield_counted", lineno=loop.lineno)
        loop.iter = nodes.Call(counter, [loop.iter], [], None, None, lineno=loop.lineno)
    tree.set_environment(environment)


def _counted(values: Iterable[Any]) -> Iterator[Any]:
    budget = _budget.get()
    for value in values:
        budget.left -= 1
        if budget.left < 0:
            raise jinja2.TemplateError("its loops take too many steps (--max-template-steps)")
        yield value
