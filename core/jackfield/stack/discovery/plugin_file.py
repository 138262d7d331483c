"""One-file plugins: a Python file whose constant PLUGIN (or PLUGINS) is its manifest. Read with `ast`, never imported here.

The constant has the keys of `plugin.toml`; `options`, `probe` and `parameters` name things of the same file. Loading is the
business of `stack.loading.files`.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jackfield.config.errors import did_you_mean
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.discovery.catalogue import PluginRow, Status
from jackfield.stack.discovery.manifest import Manifest, ParsedRow, parse_manifest
from jackfield.stack.discovery.versions import incompatibilities

ONE, SEVERAL, LAYOUTS = "PLUGIN", "PLUGINS", "LAYOUTS"
"""The constants: one plugin's table, a list of such tables, and the tables of KV layouts that an attention plugin declares."""

LONGEST_LINE = 100
"""Characters of a wrong line that a message shows."""

MODULE_PREFIX = "jackfield_plugin_file_"

_REFERENCES = ("options", "probe", "parameters")
_NAME_IN_FILE = re.compile(r":?([A-Za-z_]\w*)")


class Unreadable(Exception):
    """The file holds no manifest that could be read. The text says why, and what to write."""


@dataclass(frozen=True, kw_only=True)
class PluginFile:
    """A file that was read. module: the name under which each process imports it; other bytes have another."""

    path: Path
    digest: str
    module: str
    manifest: Manifest


def file_rows(paths: Sequence[Path]) -> Iterator[PluginRow]:
    """A row for each plugin of each file, and for each file that has none. A file that is named twice counts once."""
    once: dict[Path, Path] = {}
    for path in paths:  # under the name that was given: a link's target may have any
        once.setdefault(Path(os.path.realpath(path)), Path(os.path.abspath(path)))
    for path in once.values():
        base = PluginRow(kind="", name="", distribution=path.name, version="", path=path, location=path.parent)
        try:
            file = read_plugin_file(path)
        except Unreadable as error:
            yield replace(base, status=Status.BROKEN, problem=str(error))
            continue
        base = replace(base, module=file.module, digest=file.digest, layouts=file.manifest.layouts)
        for parsed in file.manifest.rows:
            yield _row(base, parsed, file.manifest)


def read_plugin_file(path: Path) -> PluginFile:
    """Raises Unreadable."""
    source = read_source(path)
    digest = hashlib.sha256(source).hexdigest()
    module = f"{MODULE_PREFIX}{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}_{digest[:16]}"
    constants = _constants(_parsed(source, path))
    tables = [_within(table, module) for table in _tables(constants)]
    layouts = constants.get(LAYOUTS, [])
    if not isinstance(layouts, list) or not all(isinstance(layout, dict) for layout in layouts):
        raise Unreadable(f"its {LAYOUTS} must be a list of dicts")
    return PluginFile(path=path, digest=digest, module=module, manifest=parse_manifest(tables, layouts))


def read_source(path: Path) -> bytes:
    """The file's bytes. Raises Unreadable."""
    if path.is_dir():
        raise Unreadable("it is a folder: name one .py file, or install it as a package")
    if path.suffix != ".py":
        raise Unreadable("it is no Python file: its name must end in .py")
    if path.is_symlink() and not path.exists():
        raise Unreadable(f"it is a link that leads nowhere (to {os.readlink(path)})")
    if path.exists() and not path.is_file():
        # Of a pipe there would be no end, and each process would read another part.
        raise Unreadable("it is no regular file: name one .py file")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        beside = sorted(file.name for file in path.parent.glob("*.py")) if path.parent.is_dir() else []
        raise Unreadable(
            f"there is no such file{did_you_mean(path.name, beside, noun='in its folder') if beside else ''}"
        ) from None
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error.strerror}") from None


def _parsed(source: bytes, path: Path) -> ast.Module:
    try:
        return ast.parse(source, filename=str(path))
    except SyntaxError as error:
        line = (error.text or "").strip()
        line = line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + "..."
        place = "" if error.lineno is None else f"line {error.lineno}{': ' if line else ' '}{line}{' ' if line else ''}"
        raise Unreadable(f"it is not valid Python: {place}({error.msg})") from None
    except ValueError as error:  # what else Python's own parser may raise
        raise Unreadable(f"it is not valid Python: {error}") from None
    except (RecursionError, MemoryError):
        raise Unreadable("it is not valid Python: it is nested too deeply") from None


def _constants(tree: ast.Module) -> dict[str, Any]:
    """The manifest's constants, with tuples as lists. Raises Unreadable."""
    found: dict[str, Any] = {}
    assigned: list[str] = []
    for statement in tree.body:
        if (changed := _changed(statement)) is not None:
            raise Unreadable(
                f"line {statement.lineno} changes its {changed}, which is read without running the file: write it as one literal"
            )
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, value = [statement.target], statement.value
        else:
            continue
        for name in [target.id for target in targets if isinstance(target, ast.Name)]:
            assigned.append(name)
            if name not in (ONE, SEVERAL, LAYOUTS):
                continue
            if name in found:
                raise Unreadable(f"it sets {name} twice, the second time in line {statement.lineno}")
            try:
                found[name] = _lists(ast.literal_eval(value))
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                raise Unreadable(
                    f"its {name} (line {statement.lineno}) must be a literal, because it is read without running the file: a "
                    "dict of texts, numbers and lists, without names, calls or f-strings"
                ) from None
    if ONE in found and SEVERAL in found:
        raise Unreadable(f"it has both {ONE} and {SEVERAL}: keep one")
    if ONE not in found and SEVERAL not in found:
        near = [name for name in assigned if name.upper() in (ONE, SEVERAL)]
        inner = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in (ONE, SEVERAL)]
        meant = (
            f" (it has {near[0]!r})"
            if near
            else f" at its top level (line {inner[0]} is inside another statement)"
            if inner
            else ""
        )
        raise Unreadable(f"it has no constant {ONE}{meant}. Write at its top level:\n{example(_kind_of(tree))}")
    return found


def _changed(statement: ast.stmt) -> str | None:
    """The constant that this statement changes after it was set, such as PLUGIN["name"] = ... or PLUGIN |= ..., or None."""
    if isinstance(statement, ast.AugAssign):
        targets: list[ast.expr] = [statement.target]
    elif isinstance(statement, ast.Assign):
        targets = [target.value for target in statement.targets if isinstance(target, ast.Subscript)]
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        targets = [function.value] if isinstance(function, ast.Attribute) else []
    else:
        return None
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return next((name for name in names if name in (ONE, SEVERAL, LAYOUTS)), None)


def _tables(constants: dict[str, Any]) -> list[dict[str, Any]]:
    if ONE in constants:
        if not isinstance(constants[ONE], dict):
            raise Unreadable(f"its {ONE} must be a dict, such as:\n{example('schedule_policy')}")
        return [constants[ONE]]
    tables = constants[SEVERAL]
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise Unreadable(f"its {SEVERAL} must be a list of dicts, such as [{ONE}] with:\n{example('schedule_policy')}")
    return tables


def _kind_of(tree: ast.Module) -> str:
    """The kind whose hook the file has; a policy, which most of them are, if it has none."""
    functions = {statement.name for statement in tree.body if isinstance(statement, ast.FunctionDef)}
    return next((kind.name for kind in KINDS.values() if kind.hook in functions), "schedule_policy")


def example(kind: str) -> str:
    """A manifest constant to copy."""
    version = KINDS[kind].contract_version
    extra = {
        "attention": '    "layouts": ["nhd-paged"],\n',
        "model": '    "architectures": ["..."],\n',
    }.get(kind, "")
    return (
        f'{ONE} = {{\n    "kind": "{kind}",\n    "name": "my-{kind.replace("_", "-")}",\n    "summary": "...",\n'
        f'    "contract": {{"{kind}": "{version}"}},\n{extra}}}'
    )


def _within(table: dict[str, Any], module: str) -> dict[str, Any]:
    """The table with "Options" and ":Options" written out as references into the file's module."""
    full = dict(table)
    for key in _REFERENCES:
        value = table.get(key)
        if isinstance(value, str) and (match := _NAME_IN_FILE.fullmatch(value)):
            full[key] = f"{module}:{match[1]}"
    return full


def _row(base: PluginRow, parsed: ParsedRow, manifest: Manifest) -> PluginRow:
    row = replace(base, kind=parsed.row.kind, name=parsed.row.name, summary=parsed.row.summary)
    problems = [*manifest.problems, *parsed.problems]
    twins = [p for p in manifest.rows if (p.row.kind, p.row.name) == (row.kind, row.name)]
    if len(twins) > 1:
        problems.append(f"its {SEVERAL} has {len(twins)} entries for {row.kind} {row.name!r}")
    for key in _REFERENCES:
        reference = getattr(parsed.row, key)
        if reference is not None and not reference.startswith(base.module + ":"):
            # The digest would not cover it.
            problems.append(f"{key} = {reference!r} must name something of this file, such as ':Options'")
    if row.kind and row.kind not in KINDS:
        unknown = f"this core knows no kind {row.kind!r}{did_you_mean(row.kind, KINDS)}"
        return replace(row, status=Status.UNKNOWN_KIND, problem="; ".join([unknown, *problems]))
    if not parsed.row.contract and row.kind in KINDS and "manifest key 'contract' is missing" in problems:
        version = KINDS[row.kind].contract_version
        problems = [p for p in problems if p != "manifest key 'contract' is missing"]
        problems.append(f'the manifest key \'contract\' is missing: write "contract": {{"{row.kind}": "{version}"}}')
    incompatible = incompatibilities(parsed.row) if row.kind and parsed.row.contract else []
    if incompatible:
        return replace(row, status=Status.INCOMPATIBLE, problem="; ".join([*incompatible, *problems]))
    if problems:
        return replace(row, status=Status.BROKEN, problem="; ".join(problems))
    return replace(row, manifest=parsed.row)


def _lists(value: Any) -> Any:
    """The same with lists for tuples, as TOML would have it."""
    if isinstance(value, list | tuple):
        return [_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return value
