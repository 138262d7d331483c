"""One question to another process: JSON in, JSON out, a refusal told as the child worded it.

For what must not happen in this process: importing plugins so as to look at them. The module that asks has a function
`answer(order)`, which the child calls.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.stack.errors import PLUGIN_ERRORS

# It waits for no thread that a plugin has left behind.
_MAIN = "import os, sys; from jackfield.stack.child import serve_child; os._exit(serve_child(sys.argv[1]))"


class ChildFailure(Exception):
    """The child crashed. The text is its last words."""


def call_in_child(module: str, order: dict[str, Any], *, fresh: bool = False, limit: float | None = None) -> Any:
    """Call `module.answer(order)` in a child with this process's import path, and return what it returns.

    fresh   in a new interpreter, whatever that takes; else a fork of this process will do, where that is safe: it need not
            import again what is here already
    limit   seconds after which a fresh child that has not answered is killed

    Raises ConfigurationError with the child's message, or ChildFailure.
    """
    request = json.dumps({"path": sys.path, "order": order}, default=str)
    told, words, code = _forked(module, request) if may_fork() and not fresh else _fresh(module, request, limit)
    try:
        reply = json.loads(told)
    except ValueError:
        said = words.strip().splitlines() or ["it said nothing"]
        raise ChildFailure(f"the process of {module} ended with code {code}: {said[-1]}") from None
    if "refused" in reply:
        raise ConfigurationError(reply["refused"])
    if "crashed" in reply:
        raise ChildFailure(reply["crashed"])
    return reply["answer"]


def may_fork() -> bool:
    """Not beside other threads, whose locks nobody would open in the child, nor beside torch, which has such threads."""
    return sys.platform == "linux" and threading.active_count() == 1 and "torch" not in sys.modules


def serve_child(module: str) -> int:
    """A fresh child's life: read the order, do the work, write the answer. Returns the exit code."""
    # Whatever a plugin prints while it is imported must not get between the lines of the answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with answers:
        answers.write(_reply(module, sys.stdin.read()))
    return 0


def _fresh(module: str, request: str, limit: float | None) -> tuple[str, str, int]:
    """What the child answered, what else it said, and its exit code.

    Files and not pipes, and a session of its own: a plugin may have started processes that hold on to what they inherited. They
    end with the child.
    """
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as words:
        asked.write(request.encode())
        asked.seek(0)
        child = subprocess.Popen(
            # -P: the child looks for modules where this process does, not in the folder in which the user happens to be.
            [sys.executable, "-P", "-c", _MAIN, module],
            stdin=asked,
            stdout=told,
            stderr=words,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
            start_new_session=True,
        )
        try:
            code = child.wait(limit)
        except subprocess.TimeoutExpired:
            raise ChildFailure(f"it had not answered after {limit:g} seconds, and was killed") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        for said in (told, words):
            said.seek(0)
        return told.read().decode(errors="replace"), words.read().decode(errors="replace"), code


def _forked(module: str, request: str) -> tuple[str, str, int]:
    ours, theirs = os.pipe()
    with tempfile.TemporaryFile() as words:
        pid = os.fork()
        if pid == 0:
            _live_forked(module, request, theirs, words.fileno())
        os.close(theirs)
        try:
            with os.fdopen(ours, encoding="utf-8", errors="replace") as answers:
                told = answers.read()
        except BaseException:  # interrupted: it is not left behind
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        _, status = os.waitpid(pid, 0)
        words.seek(0)
        return told, words.read().decode(errors="replace"), os.waitstatus_to_exitcode(status)


def _live_forked(module: str, request: str, answers: int, words: int) -> None:
    """Does not return, and flushes nothing that the parent had begun to write."""
    code = 1
    try:
        for descriptor in (1, 2):
            os.dup2(words, descriptor)
        sys.stdout = sys.stderr = open(os.dup(2), "w", encoding="utf-8", buffering=1)  # noqa: SIM115 - for its life
        with os.fdopen(answers, "w", encoding="utf-8") as stream:
            stream.write(_reply(module, request))
        code = 0
    finally:
        os._exit(code)


def _reply(module: str, request: str) -> str:
    order = json.loads(request)
    sys.path[:] = order["path"]
    try:
        return json.dumps({"answer": importlib.import_module(module).answer(order["order"])})
    except ConfigurationError as error:
        return json.dumps({"refused": str(error)})
    except PLUGIN_ERRORS as error:
        traceback.print_exc()
        from jackfield.stack.loading.imports import told

        return json.dumps({"crashed": told(error)})
