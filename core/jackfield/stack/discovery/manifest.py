"""`plugin.toml`: what a distribution says of its plugins, as typed rows. Reads one file and imports nothing.

A wrong row is kept with its problems instead of being dropped, so that `plugins list` can show it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jackfield.config.errors import did_you_mean, either
from jackfield.hookspecs.kinds import KINDS
from jackfield.hookspecs.kv import CORE_LAYOUTS, KVLayout, KVTensorSpec
from jackfield.stack.discovery.claims import claim_problems
from jackfield.stack.discovery.interpreter import Interpreter, read_interpreter
from jackfield.stack.discovery.manifest_values import (
    dotted,
    kind_versions,
    text,
    text_sets,
    texts,
    version_range,
    whole,
)
from jackfield.stack.names import is_plugin_name, normalise_name

MANIFEST_NAME = "plugin.toml"

ANY_LAYOUT = "*"
"""In the `layouts` of an ops plugin: it takes every layout alike."""

WORKER_NEEDS = ("attention", "ops", "model", "loader")
"""Kinds that a worker may build on."""

_LAYOUT_WORDS = ("page", "kv_heads", "head", "v_head")
_LAYOUT_ROLES = ("k", "v", "kv", "scale", "latent", "state")


@dataclass(frozen=True, kw_only=True)
class ManifestRow:
    """One `[[plugin]]` table. Names are normalised; empty lists mean "no restriction" or "nothing", as the key says.

    contract       kind -> "major.minor" that the plugin was written for; more kinds than its own if it uses their contracts
    core           versions of jackfield that it takes, as a PEP 440 range, or None: whatever speaks its contract
    devices        device types it runs on; empty: any
    dtypes         run dtypes it computes in; empty: any
    layouts        KV layouts it accepts (attention; what it likes best is first) or may write itself (ops)
    features       what it offers beyond the minimum ("window", "cached_tokens", ...)
    needs          what it asks of others: kinds (worker), cache features (schedule_policy)
    encodings      packed weights that it multiplies without unpacking (ops)
    interpreter    how its kernels are tested on a CPU (attention, ops), or None: they are not
    architectures  Hugging Face architecture names (model)
    files          glob patterns of file names that it reads (loader)
    templates      alternatives by which a chat template's format is known, each the texts that must all stand in it (parser)
    probe          "package.module:check", importing no torch
    priority       the highest compatible one is chosen when none is named
    options        "package.module:Model" of its pydantic options, or None: it has none
    parameters     the same of what a request may give it (logits_processor)
    processes      process roles in which it lives; empty: the kind's own
    """

    kind: str
    name: str
    summary: str = ""
    contract: dict[str, str] = field(default_factory=dict)
    core: str | None = None
    devices: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    encodings: tuple[str, ...] = ()
    interpreter: Interpreter | None = None
    architectures: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    templates: tuple[tuple[str, ...], ...] = ()
    probe: str | None = None
    priority: int = 0
    options: str | None = None
    parameters: str | None = None
    processes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ParsedRow:
    """A row and all that is wrong with it, one text each."""

    row: ManifestRow
    problems: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One file. problems: of the file itself, which then has no rows to trust."""

    rows: tuple[ParsedRow, ...] = ()
    layouts: tuple[KVLayout, ...] = ()
    problems: tuple[str, ...] = ()


def read_manifest(path: Path) -> Manifest:
    """Parse and check one file. Never raises for what the file holds: problems are in the answer."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        return Manifest(problems=(f"{MANIFEST_NAME} cannot be read: {error}",))
    except tomllib.TOMLDecodeError as error:
        return Manifest(problems=(f"{MANIFEST_NAME} is not valid TOML: {error}",))
    problems = [
        f"{MANIFEST_NAME} has the unknown table {key!r}{did_you_mean(key, ('plugin', 'layout'))}"
        for key in table
        if key not in ("plugin", "layout")
    ]
    plugins, layouts = table.get("plugin", []), table.get("layout", [])
    if not _is_table_list(plugins) or not _is_table_list(layouts):
        return Manifest(problems=(*problems, f"{MANIFEST_NAME}: write [[plugin]] and [[layout]], with two brackets"))
    return parse_manifest(plugins, layouts, problems)


def parse_manifest(
    plugins: Sequence[Mapping[str, Any]], layouts: Sequence[Mapping[str, Any]], problems: Sequence[str] = ()
) -> Manifest:
    """Check the tables of one manifest, whatever they were written in. `problems`: those found before."""
    problems = list(problems)
    parsed_layouts = []
    for layout in layouts:
        parsed, wrong = _parse_layout(layout)
        problems.extend(wrong)
        if parsed is not None:
            parsed_layouts.append(parsed)
    rows = tuple(parse_row(row) for row in plugins)
    problems.extend(_layout_name_problems([layout.name for layout in parsed_layouts], rows))
    return Manifest(rows=rows, layouts=tuple(parsed_layouts), problems=tuple(problems))


def parse_row(table: Mapping[str, Any]) -> ParsedRow:
    """Check one `[[plugin]]` table. Every problem is reported, not the first alone."""
    problems: list[str] = []
    values: dict[str, Any] = {}
    for key, value in table.items():
        check = _KEYS.get(key)
        if check is None:
            problems.append(f"unknown manifest key {key!r}{did_you_mean(key, _KEYS)}")
            continue
        good, wanted = check(value)
        if good is None:
            problems.append(f"manifest key {key!r} must be {wanted}, not {value!r}")
        else:
            values[key] = good
    kind = values.setdefault("kind", "")
    values["name"] = normalise_name(values.get("name", ""))
    row = ManifestRow(**values)
    problems.extend(f"manifest key {key!r} is missing" for key in _REQUIRED if not table.get(key))
    if row.name and not is_plugin_name(row.name):
        problems.append(f"the name {row.name!r} is not of the form [a-z0-9]+(-[a-z0-9]+)*")
    if kind in KINDS:
        problems.extend(_kind_problems(row))
    return ParsedRow(row=row, problems=tuple(problems))


def _kind_problems(row: ManifestRow) -> list[str]:
    """What only some kinds may or must say."""
    problems = [
        f"manifest key {key!r} means nothing for kind {row.kind!r}; it belongs to {' and '.join(kinds)}"
        for key, kinds in _ONLY_FOR.items()
        if getattr(row, key) and row.kind not in kinds
    ]
    for key in _MUST_SAY.get(row.kind, ()):
        if not getattr(row, key):
            problems.append(f"a plugin of kind {row.kind!r} must list its {key}")
    problems.extend(claim_problems(row.kind, row.features))
    if row.kind == "worker":
        problems.extend(
            f"a worker cannot need {need!r}{did_you_mean(need, WORKER_NEEDS)}"
            for need in row.needs
            if need not in WORKER_NEEDS
        )
    if row.kind == "parser" and len(set(row.features) & set(KINDS["parser"].parts)) != 1:
        problems.append(f"a parser reads one of {either(KINDS['parser'].parts)}: its features name exactly one of them")
    if row.kind == "attention" and ANY_LAYOUT in row.layouts:
        problems.append("an attention plugin names the layouts that it accepts; '*' is for ops")
    roles = KINDS[row.kind].processes
    problems.extend(
        f"kind {row.kind!r} has no place in process {role!r}{did_you_mean(role, roles)}"
        for role in row.processes
        if role not in roles
    )
    return problems


def _parse_layout(table: Mapping[str, Any]) -> tuple[KVLayout | None, list[str]]:
    name = table.get("name")
    if not isinstance(name, str) or "/" not in name:
        return None, [f'a [[layout]] needs a name of the form "<plugin>/<name>", not {name!r}']
    if name in CORE_LAYOUTS:
        return None, [f"the layout name {name!r} is the core's own"]
    problems = [
        f"layout {name!r}: unknown key {key!r}{did_you_mean(key, ('name', 'tensors'))}"
        for key in table
        if key not in ("name", "tensors")
    ]
    tensors = table.get("tensors", [])
    if not _is_table_list(tensors) or not tensors:
        return None, [*problems, f"layout {name!r}: tensors must be a list of tables"]
    specs = []
    for tensor in tensors:
        role, shape, dtype = tensor.get("role"), tensor.get("shape", []), tensor.get("dtype", "kv")
        unknown = [key for key in tensor if key not in ("role", "shape", "dtype")]
        words_ok = isinstance(shape, list) and all(
            word in _LAYOUT_WORDS or (isinstance(word, int) and not isinstance(word, bool) and word > 0)
            for word in shape
        )
        if unknown or role not in _LAYOUT_ROLES or not shape or not words_ok or not isinstance(dtype, str):
            problems.append(
                f"layout {name!r}: a tensor is {{ role = one of {', '.join(_LAYOUT_ROLES)}; shape = list of "
                f'{", ".join(_LAYOUT_WORDS)} or positive numbers; dtype = a dtype\'s name or "kv" }}, not {dict(tensor)!r}'
            )
        else:
            specs.append(KVTensorSpec(role=role, shape=tuple(shape), dtype=dtype))
    return (None if problems else KVLayout(name=name, tensors=tuple(specs))), problems


def _layout_name_problems(names: Sequence[str], rows: Sequence[ParsedRow]) -> list[str]:
    """Whoever declares a layout owns its name, so that two distributions cannot mean different things by it."""
    owners = [parsed.row.name for parsed in rows if parsed.row.kind == "attention"]
    problems = [f"layout {name!r} is declared twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    for name in names:
        if name.partition("/")[0] not in owners:
            problems.append(
                f"layout {name!r} must begin with the name of an attention plugin of this file "
                f"({', '.join(owners) or 'it has none'})"
            )
    return problems


def _is_table_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


_KEYS: Mapping[str, Callable[[Any], tuple[Any, str]]] = {
    "kind": text,
    "name": text,
    "summary": text,
    "contract": kind_versions,
    "core": version_range,
    "devices": texts,
    "dtypes": texts,
    "layouts": texts,
    "features": texts,
    "needs": texts,
    "encodings": texts,
    "interpreter": read_interpreter,
    "architectures": texts,
    "files": texts,
    "templates": text_sets,
    "probe": dotted,
    "priority": whole,
    "options": dotted,
    "parameters": dotted,
    "processes": texts,
}
_REQUIRED = ("kind", "name", "summary", "contract")
_ONLY_FOR: Mapping[str, tuple[str, ...]] = {
    "layouts": ("attention", "ops"),
    "needs": ("worker", "schedule_policy"),
    "encodings": ("ops",),
    "interpreter": ("attention", "ops"),
    "architectures": ("model",),
    "files": ("loader",),
    "templates": ("parser",),
    "parameters": ("logits_processor",),
}
_MUST_SAY: Mapping[str, tuple[str, ...]] = {
    "attention": ("layouts",),
    "model": ("architectures",),
    "parser": ("features",),
}
