"""Questions to a child, forked and fresh: answers, refusals and last words are the same."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import psutil
import pytest

from jackfield.stack.child import call_in_child, may_fork
from tests.e2e.http.servers import until
from tests.unit.stack.distributions import Site

ASKED = """
import os, sys
from jackfield.config.errors import ConfigurationError
def answer(order):
    print("noise on stdout")
    os.write(1, b"and below Python\\n")
    what = order["what"]
    if what == "answer": return {"got": order, "here": "acme_helper" in sys.modules, "pid": os.getpid()}
    if what == "refuse": raise ConfigurationError("no such thing")
    if what == "raise": raise ValueError("of the module's own")
    if what == "exit": raise SystemExit(4)
    sys.stderr.write("last words\\n")
    sys.stderr.flush()
    os._exit(7)
"""

ASK = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from jackfield.stack.child import ChildFailure, call_in_child, may_fork
from jackfield.config.errors import ConfigurationError
sys.stdout.write("[")  # not flushed: a fork must not write it once more
told = []
for fresh in (False, True):
    for what in ("answer", "refuse", "raise", "exit", "die"):
        try:
            answer = call_in_child("acme_asked", {"what": what}, fresh=fresh)
            told.append([answer["got"], answer["here"], answer["pid"] != os.getpid()])
        except (ConfigurationError, ChildFailure) as error:
            told.append([type(error).__name__, str(error)])
print(json.dumps([may_fork(), "acme_asked" in sys.modules, told]), end="]")
"""


def test_a_fork_and_a_fresh_interpreter_answer_alike(site: Site) -> None:
    (site.folder / "acme_asked.py").write_text(ASKED)
    # In a process of its own: a test runner may have threads, and then there is no fork.
    ended = subprocess.run([sys.executable, "-c", ASK, str(site.folder)], capture_output=True, text=True, check=True)
    ((forks, imported, told),) = json.loads(ended.stdout)
    assert forks == (sys.platform == "linux")
    assert not imported
    assert told[:5] == told[5:]
    assert told[:5] == [
        [{"what": "answer"}, False, True],
        ["ConfigurationError", "no such thing"],
        ["ChildFailure", "ValueError: of the module's own"],
        ["ChildFailure", "SystemExit: 4"],
        ["ChildFailure", "the process of acme_asked ended with code 7: last words"],
    ]


LEAVES = """
import os, threading
def answer(order):
    threading.Thread(target=threading.Event().wait).start()
    pid = os.fork()
    if pid == 0:
        threading.Event().wait()
    return pid
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it forks")
def test_nobody_waits_for_what_a_module_leaves_behind_and_it_ends_too(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site.folder / "acme_leaves.py").write_text(LEAVES)
    monkeypatch.syspath_prepend(str(site.folder))
    left = call_in_child("acme_leaves", {}, fresh=True)
    until(lambda: not lives(left))  # it is killed by then; whose child it has become takes it away


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_no_fork_beside_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert not may_fork()
