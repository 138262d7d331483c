"""`jackfield conformance KIND.NAME`: runs the kind's conformance suite on an installed plugin, in a pytest of its own.

Knows how to start it and how to show what it found; what is checked stands in `jackfield.testing.conformance`, which this
process does not import. 0: it conforms, 1: it does not, 2: it could not be tested.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from jackfield import __version__
from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.cli.conformance_choice import Chosen, chosen_plugins, interpreting, process_groups
from jackfield.entrypoints.cli.output import print_table
from jackfield.stack.discovery.interpreter import INTERPRETED
from jackfield.stack.discovery.scan import discover

PASSED, FAILED, CANNOT_RUN = 0, 1, 2
DETAIL_LINES = 6
_TOOLS = ("pytest", "hypothesis")


def add_parser(subparsers: Any) -> None:
    """The destinations are no names of ServerArgs, which are read from the same namespace."""
    parser = subparsers.add_parser(
        "conformance",
        help="test a plugin against the contract of its kind",
        description="Test an installed plugin against the contract of its kind. Exit code 0: it conforms, 1: it does not, "
        "2: it could not be tested.",
    )
    parser.add_argument("plugins_to_test", metavar="KIND.NAME", nargs="*", help="for example schedule_policy.fcfs")
    parser.add_argument(
        "--plugin",
        dest="plugin_files",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="a one-file plugin; without KIND.NAME all that is in it is tested",
    )
    parser.add_argument("--all", action="store_true", help="every healthy plugin that is installed")
    parser.add_argument(
        "--option",
        dest="single_options",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the plugin; with several plugins KIND.NAME.NAME=VALUE",
    )
    parser.add_argument(
        "--options", dest="all_options", metavar="JSON", help="all options of the one plugin, as a JSON object"
    )
    parser.add_argument(
        "--device",
        dest="on_device",
        default="cpu",
        help=f"where plugins that compute do so (default: cpu); {INTERPRETED}: kernels of another device, in an interpreter",
    )
    parser.add_argument("--check", metavar="TEXT", help="only checks whose name holds this text")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON; - for stdout")
    parser.add_argument("--debug", action="store_true", help="show pytest's own output, with tracebacks")


def run(namespace: argparse.Namespace) -> int:
    missing = [tool for tool in _TOOLS if importlib.util.find_spec(tool) is None]
    if missing:
        raise ConfigurationError(
            f"conformance: {' and '.join(missing)} cannot be imported here: pip install 'jackfield[testing]'"
        )
    chosen = chosen_plugins(namespace, discover(files=namespace.plugin_files))
    report: dict[str, Any] = {}
    for group in process_groups(chosen, namespace.on_device):
        found = _tested(group, namespace)
        report = found | {"plugins": [*report.get("plugins", []), *found["plugins"]]}
    if not report["plugins"]:
        raise ConfigurationError(f"conformance: no check matches --check {namespace.check!r}")
    if namespace.json is not None:
        _write(report, namespace.json)
    if namespace.json is None or str(namespace.json) != "-":
        for plugin in report["plugins"]:
            _show(plugin)
    outcomes = {plugin["outcome"] for plugin in report["plugins"]}
    return FAILED if "failed" in outcomes else CANNOT_RUN if "cannot run" in outcomes else PASSED


def _tested(chosen: dict[str, Chosen], namespace: argparse.Namespace) -> dict[str, Any]:
    """The report of a child pytest. Raises ConfigurationError if it wrote none."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        folder = Path(name)
        tests, report = folder / "test_conformance.py", folder / "report.json"
        tests.write_text(_source(chosen, namespace.on_device), encoding="utf-8")
        # Without the folder's own pytest settings and without the plugins that happen to be installed: the result depends
        # on the plugin alone.
        command = [
            sys.executable,
            "-P",
            "-m",
            "pytest",
            "-p",
            "jackfield.testing.pytest_plugin",
            "-p",
            "no:cacheprovider",
        ]
        command += ["-c", os.devnull, "--rootdir", name, "--conformance-json", str(report), "-v", str(tests)]
        if namespace.check is not None:
            command += ["-k", namespace.check]
        environment = {
            "OMP_NUM_THREADS": "1",  # many small tensors: more threads are slower, and far slower on a busy machine
            **{key: value for key, value in os.environ.items() if key not in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")},
            **interpreting(next(iter(chosen.values())).row, namespace.on_device),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONUNBUFFERED": "1",  # a plugin that ends its process leaves behind which check it was in
            "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        }
        ended = subprocess.run(
            command,
            stdout=None if namespace.debug else subprocess.PIPE,
            stderr=None if namespace.debug else subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            env=environment,
        )
        # Neither "all passed", "some failed" nor "none chosen"; or a plugin ended the process, with whatever code.
        if ended.returncode not in (0, 1, 5) or not report.is_file():
            output = ended.stdout or ""
            told = "" if namespace.debug else f":\n{output.strip()[-2000:]}"
            raise ConfigurationError(
                f"conformance: the tests of {_where(output, chosen)} came to no end: pytest ended with "
                f"{_ending(ended.returncode)}{told}"
            )
        document: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        return document


def _where(output: str, chosen: dict[str, Chosen]) -> str:
    """The plugin and the check that pytest named last, or all plugins if it named none."""
    named = re.findall(r"::Test(\d+)::(test_\S+)", output)
    return f"{list(chosen)[int(named[-1][0]) - 1]} in {named[-1][1]}" if named else ", ".join(chosen)


def _ending(code: int) -> str:
    return f"code {code}" if code >= 0 else f"signal {signal.strsignal(-code) or -code}"


def _source(chosen: dict[str, Chosen], device: str) -> str:
    """A test file with one subclass for each plugin, as an author would write it."""
    lines = ["from jackfield.testing import conformance", ""]
    for number, one in enumerate(chosen.values(), start=1):
        lines += [
            f"class Test{number}(getattr(conformance, conformance.suite_name({one.row.kind!r}))):",
            f"    plugin = {one.row.name!r}",
            f"    file = {None if one.row.path is None else str(one.row.path)!r}",
            f"    options = {one.options!r}",
            f"    device = {device!r}",
            "",
        ]
    return "\n".join(lines)


def _write(report: dict[str, Any], file: Path) -> None:
    text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
    if str(file) == "-":
        sys.stdout.write(text)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"conformance: --json {file}: {error.strerror}") from error


def _show(plugin: dict[str, Any]) -> None:
    where = (
        f"{' '.join(filter(None, (plugin['distribution'], plugin['version'])))}, " if "distribution" in plugin else ""
    )
    contract = plugin.get("contract", {}).get(plugin["kind"], "?")
    title = f"{plugin['plugin']} ({where}contract {contract}; core {__version__}, contract {plugin['core_contract']})"
    if unshown := plugin.get("dtypes_not_here"):
        title += f" on {plugin['device']}, where {', '.join(unshown)} cannot be shown"
    rows = [
        (check["check"].replace("_", " "), check["outcome"], check["proves"], check["detail"])
        for check in _together(plugin["checks"])
    ]
    print_table(("CHECK", "OUTCOME", "WHAT IT PROVES", "DETAIL"), rows, title=title)
    counts = {outcome: sum(c["outcome"] == outcome for c in plugin["checks"]) for outcome in _OUTCOMES}
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    verdict = {"failed": "does not conform", "cannot run": "could not be tested"}.get(plugin["outcome"], "conforms")
    sys.stdout.write(f"{plugin['plugin']} {verdict}: {told} in {plugin['seconds']:.1f} s\n")
    if plugin["outcome"] == "cannot run" and any("refuses its options" in row[3] for row in rows):
        sys.stdout.write(
            f"Give options as --option {plugin['plugin']}.NAME=VALUE; {{tmp}} in a text is a new folder.\n"
        )


_OUTCOMES = ("failed", "cannot run", "passed", "not here", "not claimed")


def _together(checks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a check: its worst outcome over the cases, and the first case that has it."""
    rows: dict[str, dict[str, Any]] = {}
    for check in checks:
        row = rows.setdefault(check["check"], check | {"detail": ""})
        if _OUTCOMES.index(check["outcome"]) < _OUTCOMES.index(row["outcome"]) or not row["detail"]:
            case = f"[{check['case']}] " if check["case"] else ""
            detail = "\n".join(check["detail"].splitlines()[:DETAIL_LINES])
            row |= {"outcome": min(row["outcome"], check["outcome"], key=_OUTCOMES.index)}
            row["detail"] = f"{case}{detail}" if detail else ""
    gathered = list(rows.values())
    told = {(check["outcome"], check["detail"]) for check in checks}
    if len(gathered) > 1 and len(told) == 1 and gathered[0]["detail"]:
        return [gathered[0] | {"check": f"all {len(gathered)}", "proves": ""}]
    return gathered
