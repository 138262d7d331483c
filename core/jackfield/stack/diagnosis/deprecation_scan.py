"""What a plugin's files seem to use of what its contract has deprecated. Reads source text and imports nothing.

For `plugins list`, which must not import: a name that happens to be the same counts, so these are hints. The loader knows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from jackfield.stack.discovery.catalogue import PluginRow
from jackfield.stack.loading.deprecation import deprecations_of, told


def deprecated_uses(row: PluginRow) -> list[str]:
    """One text for each; empty while nothing of the plugin's kind is deprecated, without reading a file."""
    table = list(deprecations_of(row.kind))
    if not table or row.location is None:
        return []
    files = [row.path] if row.path is not None else sorted(row.location.rglob("*.py"))
    words = {word for file in files for word in _words(file)}
    return [told(one) for one in table if one.subject in words or _field(one.subject) in words]


def _field(subject: str) -> str:
    return subject[subject.find(".") :] if "." in subject else subject


def _words(file: Path) -> Iterator[str]:
    """Each as a subject is written: "hook", "hook(argument)", "Base.method"; and ".field" for a field of anything."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return  # a broken file is discovery's or the doctor's to tell
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.name
            yield from (f"{node.name}({argument.arg})" for argument in (*node.args.args, *node.args.kwonlyargs))
        elif isinstance(node, ast.ClassDef):
            methods = [part.name for part in node.body if isinstance(part, ast.FunctionDef)]
            bases = [base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases]
            yield from (f"{base}.{method}" for base in bases for method in methods)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield f".{node.attr}"
