"""`python -m jackfield.entrypoints.child ROLE PARENT DESCRIPTOR DIRECTORY`: one process of a replica, started by
`child_process.py` only.

It ends when the descriptor does, whoever or whatever ended the parent; the system's own notice of a parent's death stands
behind that. Imports little before that is settled.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys

from jackfield.entrypoints.child_signals import ORPHANED

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def main(argv: list[str]) -> int:
    role, parent, descriptor, directory = argv[0], int(argv[1]), int(argv[2]), argv[3]
    # The terminal sends Ctrl-C to everybody; it is the parent's to decide what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Kept until somebody is there who removes the run's directory; `child_life` lets it through.
    signal.pthread_sigmask(signal.SIG_BLOCK, {ORPHANED})
    _die_with(parent, role)
    if faulthandler is not None and sys.stderr is not None:
        faulthandler.enable()
    os.set_inheritable(descriptor, False)
    # Standard output belongs to the parent's answers.
    os.dup2(2, 1)
    from jackfield.entrypoints.child_life import live

    return live(role, descriptor, directory)


def _die_with(parent: int, role: str) -> None:
    """Linux only; elsewhere the descriptor alone tells.

    The scheduler is killed outright: it may be deep in a kernel that lets no Python run. The detokenizer, which never is,
    is told by a signal of its own, so that somebody is left to remove the run's directory. The signal comes when the thread
    that started this process ends, which may be before the parent has gone for `getppid` and for the descriptor.
    """
    if sys.platform != "linux":
        return
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_NAME, f"jf-{role}"[:15].encode(), 0, 0, 0)
    prctl(_PR_SET_PDEATHSIG, int(ORPHANED if role == "detokenizer" else signal.SIGKILL), 0, 0, 0)
    # If the parent died before the line above, the end of the descriptor tells the detokenizer, which reads its orders there.
    if os.getppid() != parent and role != "detokenizer":
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
