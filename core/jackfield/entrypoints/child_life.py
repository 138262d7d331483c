"""The life of a child process, whatever its role: orders, what it found, ready, work, end. Each of its ends is told."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.child_orders import Failed, Found, Orders, Progress, Ready, ToChild
from jackfield.entrypoints.child_roles import ROLES, Part
from jackfield.entrypoints.child_signals import ORPHANED
from jackfield.entrypoints.starting import collector_paused, keep_what_is_there
from jackfield.hookspecs import ProcessInfo
from jackfield.ipc.framed_link import FramedLink
from jackfield.ipc.run_directory import remove_tree
from jackfield.stack.digest import package_digest, plugin_digest, stack_hash
from jackfield.stack.loading.imports import told
from jackfield.stack.resolved import ResolvedStack

log = logging.getLogger(__name__)

CORE = "jackfield"


class Life:
    """stopping: set when this process should end in order. Then `ring` is called, which must make a blocked loop look.

    at_work   there is something to end; before, the process ends on the spot
    """

    def __init__(self, link: FramedLink, directory: Path) -> None:
        self.link = link
        self.stopping = threading.Event()
        self.ring: Callable[[], None] = lambda: None
        self.at_work = False
        self.directory = directory

    def watch(self) -> None:
        """On a thread of its own: obey the parent, and end when it has gone."""
        while True:
            try:
                message = self.link.receive()
            except Exception:
                log.exception("the parent said something that is not understood here")
                continue
            if message is None:  # the parent keeps its end open until this process has been reaped, so it has died
                self.orphaned()
            self.stop()

    def stop(self, *_: object) -> None:
        """End in order. Also the handler of SIGTERM."""
        self.stopping.set()
        if not self.at_work:
            os._exit(0)
        self.ring()

    def orphaned(self, *_: object) -> None:
        """The parent has died. Nobody is left to answer to, and nobody else to remove the run's directory."""
        remove_tree(self.directory)
        os._exit(1)


def live(role: str, descriptor: int, directory: str) -> int:
    """directory: the run's. Returns the exit code."""
    link = FramedLink(socket.socket(fileno=descriptor), ToChild)
    life = Life(link, Path(directory))
    orders = link.receive()
    if orders is None:  # the parent died before it had given them
        life.orphaned()
    if not isinstance(orders, Orders) or orders.role != role:
        return 1
    sys.path[:] = orders.sys_path
    _start_logging(role, str(orders.args.get("log_level", "info")), all_of_it=orders.logs)
    signal.signal(signal.SIGTERM, life.stop)
    signal.signal(ORPHANED, life.orphaned)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {ORPHANED})
    threading.Thread(target=life.watch, name="jackfield-parent", daemon=True).start()
    try:
        _work(orders, life)
    except ConfigurationError as error:
        link.send(Failed(refused=True, message=str(error), traceback=traceback.format_exc()))
        return ConfigurationError.exit_code
    except (Exception, SystemExit) as error:
        log.critical("the %s process ends: %s", role, told(error), exc_info=True)
        link.send(Failed(refused=False, message=told(error), traceback=traceback.format_exc()))
        return 1
    return 0


def _work(orders: Orders, life: Life) -> None:
    plan = orders.plan()
    found = _found(orders.role, plan.stack)
    life.link.send(found)
    log.info("process %d runs the stack %s", os.getpid(), found.stack_hash)
    process = ProcessInfo(role=orders.role, pid=os.getpid(), stack_hash=found.stack_hash)

    def progress(what: str, done: int, total: int) -> None:
        life.link.send(Progress(what=what, done=done, total=total))

    with collector_paused():
        part: Part = ROLES[orders.role](plan, life.directory, process, progress)
    keep_what_is_there()
    try:
        part.observers.started()
        life.ring = part.wake
        life.at_work = True
        life.link.send(Ready(limits=part.limits))
        try:
            while not life.stopping.is_set():
                part.turn()
            part.settle()
        finally:
            part.observers.stopping()
    finally:
        part.close()


def _found(role: str, stack: ResolvedStack) -> Found:
    """Raises ConfigurationError if this process cannot import what the main process chose."""
    try:
        return Found(stack_hash=stack_hash(stack), contents=contents(stack))
    except ConfigurationError as error:
        raise ConfigurationError(
            f"the {role} process refuses: {error}. The main process can, by an import hook of its own or from files that are "
            "gone since; install the package where every process finds it"
        ) from error


def contents(stack: ResolvedStack) -> dict[str, str]:
    """Package, or a one-file plugin's path -> the digest of what this process would import."""
    plugins = {plugin.path or plugin.package: plugin_digest(plugin) for plugin in stack.plugins}
    return {CORE: package_digest(CORE), **plugins}


def _start_logging(role: str, level: str, *, all_of_it: bool) -> None:
    """all_of_it: of this level. Else warnings at least, as Python shows them for a program that has set up nothing: a script
    with an engine in it should see no more of the children than of the engine itself."""
    logging.basicConfig(stream=sys.stderr, format=f"%(levelname)s %(name)s [{role}]: %(message)s")
    logging.getLogger("jackfield").setLevel(level.upper())
    if not all_of_it:
        for handler in logging.getLogger().handlers:
            handler.setLevel(logging.WARNING)
