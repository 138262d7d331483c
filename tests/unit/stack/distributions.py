"""Builds installed distributions as plain directories: an import package, a manifest and a dist-info, as pip leaves them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jackfield.hookspecs import KINDS

_numbers = itertools.count()

HOOKS = {
    "attention": "jackfield_attention_backend",
    "cache": "jackfield_prefix_cache",
    "schedule_policy": "jackfield_schedule_policy",
    "event_loop": "jackfield_event_loop",
    "model": "jackfield_models",
    "loader": "jackfield_model_source",
    "worker": "jackfield_model_worker",
    "ops": "jackfield_ops",
    "metrics": "jackfield_metrics_sink",
    "observer": "jackfield_observer",
}

POLICY = """
from jackfield.hookspecs import SchedulePolicy, hookimpl


class Policy(SchedulePolicy):
    def __init__(self, context):
        self.context = context

    def order(self, waiting, view):
        return None


@hookimpl
def jackfield_schedule_policy(context):
    return Policy(context)
"""


def toml(value: Any) -> str:
    """A Python value as TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return json.dumps(value)


def plugin_row(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """A `[[plugin]]` table that is right as it stands; `more` overrides, None leaves a key out."""
    version = KINDS[kind].contract_version if kind in KINDS else "0.1"
    row: dict[str, Any] = {
        "kind": kind,
        "name": name,
        "summary": f"{kind} {name} of a test",
        "contract": {kind: version},
    }
    if kind == "attention":
        row["layouts"] = ["nhd-paged"]
    if kind == "model":
        row["architectures"] = ["LlamaForCausalLM"]
    if kind == "parser":
        row["features"] = ["tool_calls"]
    row |= more
    return {key: value for key, value in row.items() if value is not None}


def fresh_package(stem: str) -> str:
    """An import name that no other test uses: modules stay in `sys.modules`."""
    return f"{stem}_{next(_numbers)}"


class Site:
    """One site-packages folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def add(
        self,
        distribution: str,
        *rows: Mapping[str, Any],
        version: str = "1.0",
        package: str | None = None,
        sources: Mapping[str, str] | None = None,
        entry_points: str | None = None,
        manifest: str | None = None,
    ) -> str:
        """Install a distribution and return its import package.

        sources        module path inside the package -> source; by default each row has an empty module of its name
        entry_points   text of entry_points.txt; by default one entry a row, to the module of the row's name
        manifest       text of plugin.toml, "" for none; by default the rows
        """
        package = package or fresh_package(distribution.replace("-", "_").replace(".", "_"))
        root = self.folder / package
        root.mkdir()
        (root / "__init__.py").touch()
        for row in rows:
            (root / f"{row['name'].replace('-', '_')}.py").touch()
        for name, source in (sources or {}).items():
            file = root / f"{name.replace('.', '/')}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(source)
        if manifest is None:
            manifest = "\n".join(
                "[[plugin]]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in row.items()) for row in rows
            )
        if manifest:
            (root / "plugin.toml").write_text(manifest)
        if entry_points is None:
            groups: dict[str, str] = {}
            for row in rows:
                entry = f"{row['name']} = {package}.{row['name'].replace('-', '_')}\n"
                groups[row["kind"]] = groups.get(row["kind"], "") + entry
            entry_points = "".join(f"[jackfield.{kind}]\n{entries}" for kind, entries in groups.items())
        self.info(distribution, version, entry_points)
        return package

    def info(self, distribution: str, version: str, entry_points: str) -> Path:
        """A dist-info folder alone."""
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(entry_points)
        return info
