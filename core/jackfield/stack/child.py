"""One question to a fresh interpreter: JSON in on stdin, JSON out on stdout, a refusal told as the child worded it.

For what must not happen in this process: importing plugins so as to look at them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.stack.imports import told


class ChildFailure(Exception):
    """The child crashed. The text is its last words."""


def call_in_child(module: str, order: dict[str, Any], *, limit: float | None = None) -> Any:
    """Run `python -m module` with this process's import path and return its answer.

    limit   seconds after which a child that has not answered is killed

    Raises ConfigurationError with the child's message, or ChildFailure.
    """
    # -P: the child looks for modules where this process does, not in the folder in which the user happens to be.
    request = json.dumps({"path": sys.path, "order": order}, default=str)
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", module],
            input=request,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=limit,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        )
    except subprocess.TimeoutExpired:
        raise ChildFailure(f"it had not answered after {limit:g} seconds, and was killed") from None
    try:
        answer = json.loads(ended.stdout)
    except ValueError:
        words = ended.stderr.strip().splitlines() or ["it said nothing"]
        raise ChildFailure(f"python -m {module} ended with code {ended.returncode}: {words[-1]}") from None
    if "refused" in answer:
        raise ConfigurationError(answer["refused"])
    if "crashed" in answer:
        raise ChildFailure(answer["crashed"])
    return answer["answer"]


def serve_child(work: Callable[[dict[str, Any]], Any]) -> int:
    """The child's side: read the order, do the work, write the answer. Returns the exit code."""
    # Whatever a plugin prints while it is imported must not get between the lines of the answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.loads(sys.stdin.read())
    sys.path[:] = request["path"]
    reply: dict[str, Any]
    try:
        reply = {"answer": work(request["order"])}
        text = json.dumps(reply)
    except ConfigurationError as error:
        text = json.dumps({"refused": str(error)})
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        text = json.dumps({"crashed": told(error)})
    with answers:
        answers.write(text)
    return 0
