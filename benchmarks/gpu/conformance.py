"""The conformance suite of one plugin on this device: `jackfield conformance`, without what finds plugins in a run.

arguments: {plugin: "kind.name"}. The very checks of `jackfield.testing.conformance`, in pytest, those of attention over fewer
cases; each is a row when it ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gpu.jobs import Job, Tell
from benchmarks.gpu.providers import describe, providers

from jackfield.hookspecs import Need
from jackfield.stack.discovery.catalogue import Catalogue
from jackfield.stack.discovery.interpreter import INTERPRETED
from jackfield.stack.discovery.manifest import ManifestRow, parse_row

if TYPE_CHECKING:
    from jackfield.testing.attention_batches import AttentionCase

TINY = "one_phase or batch_fault or norm or sample_greedy or embedding"
"""Checks of the tiny run, which shows that the others would run."""

FILE = "from benchmarks.gpu.conformance import suite\n\nTestPlugin = suite({plugin!r}, {device!r})\n"


def run(job: Job, tell: Tell) -> None:
    import pytest

    plugin = job.arguments["plugin"]
    with tempfile.TemporaryDirectory() as name:
        file = (
            Path(name) / f"test_{plugin.replace('.', '_')}.py"
        )  # a name of its own: several may be run in one process
        file.write_text(FILE.format(plugin=plugin, device=job.device))
        command = ["-q", "--no-header", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", name, str(file)]
        watcher = _Watcher(job, tell, plugin)
        code = int(pytest.main(command + (["-k", TINY] if job.tiny else []), plugins=[watcher]))
    # 0: all passed, 1: some failed, 2: it was interrupted. Anything else means that nothing was looked at.
    if code not in ((0, 1, 2) if watcher.stopped else (0, 1)) or not watcher.expected:
        tell({"conformance": plugin, "failed": f"pytest ended with code {code} after {watcher.ended} checks"})
    tell({"conformance": plugin, "checks": watcher.ended, "not_run": watcher.expected - watcher.ended})


def suite(plugin: str, on: str) -> type:
    """The kind's suite, with what it asks of an installed plugin answered by the plugin's files."""
    from jackfield.testing.attention_grid import thinned
    from jackfield.testing.conformance import AttentionConformance, OpsConformance

    class Fewer(AttentionConformance):
        """Each value of each factor, not each pair of them: a case is mostly the first to need its kernels, and each takes
        seconds to compile, so that all cases of one check would take longer than the whole run may."""

        def possible(self, tried: Iterable[AttentionCase]) -> list[AttentionCase]:
            return super().possible(thinned(tried))

    provider = providers()[plugin]
    base: Any = Fewer if provider.kind == "attention" else OpsConformance

    class Plugin(base):  # type: ignore[misc]
        plugin = provider.name
        device = INTERPRETED if provider.interpreted(on) else on
        test_loads = test_imports_no_torch = None

        @classmethod
        def catalogue(cls) -> Catalogue:
            return Catalogue(())

        @classmethod
        def stack(cls) -> None:
            """There is none."""

        @classmethod
        def manifest(cls) -> ManifestRow:
            return parse_row(provider.row).row

        @classmethod
        def make(cls, **fields: Any) -> Any:
            return provider.make(fields)

        @classmethod
        def _identify(cls) -> dict[str, Any]:
            return {"plugin": plugin}

        def refusals(self, need: Need) -> list[str]:
            return [str(problem) for problem in provider.refusals(need, describe(need.device))]

    return Plugin


class _Watcher:
    """Tells of each check, and ends the run when its time is over."""

    def __init__(self, job: Job, tell: Tell, plugin: str) -> None:
        self._job, self._tell, self._plugin = job, tell, plugin
        self.expected = self.ended = 0
        self.stopped = False

    def pytest_collection_finish(self, session: Any) -> None:
        self.expected = len(session.items)

    def pytest_runtest_setup(self, item: Any) -> None:
        if self._job.left <= 0:
            self.stopped = True
            item.session.shouldstop = "no time was left"

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call" and not (report.when == "setup" and report.outcome != "passed"):
            return
        self.ended += 1
        row = {
            "conformance": self._plugin,
            "check": report.nodeid.rpartition("::")[2].removeprefix("test_"),
            "outcome": report.outcome,
            "seconds": report.duration,
        }
        if report.skipped:
            row["why"] = str(report.longrepr[2]).removeprefix("Skipped: ")
        self._tell(row | {"failed": report.longreprtext} if report.failed else row)
