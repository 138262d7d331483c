"""The reference of hooks and its examples as one module, read from the specifications and their docstrings."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from jackfield import hookspecs
from jackfield.hookspecs import (
    KINDS,
    LIFECYCLE_HOOKS,
    SPECS,
    chat,
    common,
    decisions,
    device,
    kv,
    logprobs,
    mover,
    pooling,
    tables,
)
from jackfield.stack.loading.hooks import hook_table


def hooks() -> Iterator[str]:
    yield "# Hooks\n"
    yield (
        "What a plugin implements, by kind. A provider hook is called once at start and returns an object; the runtime calls "
        "that object. Every name below comes from `jackfield.hookspecs`: `from jackfield.hookspecs import hookimpl, Freed`. What "
        "several kinds share stands at the [end](#shared): [amounts and problems](#jackfieldhookspecscommon), [the "
        "device](#jackfieldhookspecsdevice), [KV memory and its "
        "layouts](#jackfieldhookspecskv), [what a policy sees of requests](#jackfieldhookspecstables), [the record of "
        "decisions](#jackfieldhookspecsdecisions), [log-probabilities](#jackfieldhookspecslogprobs), "
        "[chats](#jackfieldhookspecschat), [copies "
        "of KV](#jackfieldhookspecsmover), [what a model gives of whole prompts](#jackfieldhookspecspooling). "
        "Arguments of all records are keyword-only.\n"
    )
    yield "## Kinds\n"
    yield "| kind | contract | hook | how many | flag | processes | what it does |\n|---|---|---|---|---|---|---|"
    for kind in KINDS.values():
        many = "one" if kind.exclusive else "any number"
        yield (
            f"| `{kind.name}` | {kind.contract_version} | `{kind.hook}` | {many} | `{kind.flag}` | {', '.join(kind.processes)} | "
            f"{kind.summary} |"
        )
    yield ""
    for module, specs in _specs_by_module().items():
        yield f"## {module.__name__}\n"
        yield f"{inspect.getdoc(module)}\n"
        (owner,) = {hook_table()[name].kind for spec in specs for name in vars(spec) if name in hook_table()}
        state = "frozen" if KINDS[owner].contract[0] else "provisional"
        version = KINDS[owner].contract_version
        yield f'Contract {version}, {state}: `contract = {{ {owner} = "{version}" }}` ([versions](../versioning.md)).\n'
        for spec in specs:
            if spec.__doc__:
                yield f"{inspect.cleandoc(spec.__doc__)}\n"
            for name, function in vars(spec).items():
                if name.startswith("jackfield_"):
                    yield f"### `{name}{_signature(function)}`\n"
                    yield f"{_prose(function)}\n"
        yield from _classes(module, *specs)
    yield "# Shared\n"
    for module in (common, device, kv, tables, decisions, logprobs, mover, chat, pooling):
        yield f"## {module.__name__}\n"
        yield f"{inspect.getdoc(module)}\n"
        yield from _classes(module)
        yield from _tables(module)
        yield from _functions(module)


def _specs_by_module() -> dict[ModuleType, list[type]]:
    found: dict[ModuleType, list[type]] = {}
    for spec in SPECS:
        module = inspect.getmodule(spec)
        assert module is not None
        found.setdefault(module, []).append(spec)
    return found


def hook_examples() -> Iterator[str]:
    """Every example of a hook as one module, which mypy checks: those of lifecycle hooks are methods of one observer."""
    yield '"""The examples of the hooks, one after the other. Written by `make docs` from the code; do not edit."""\n'
    yield "from __future__ import annotations\n"
    yield "from collections import Counter\nfrom collections.abc import Mapping, Sequence\nfrom typing import TextIO\n"
    examples = {
        name: _example(function) for spec in SPECS for name, function in vars(spec).items() if name in hook_table()
    }
    words = {"WaitReason", *(word for text in examples.values() for word in re.findall(r"\w+", text))}
    yield "from jackfield.hookspecs import ("
    yield from (f"    {name}," for name in sorted(words & set(hookspecs.__all__)))
    yield ")\n\n"
    yield "class Observer:"
    yield '    """What the examples of lifecycle hooks call `self`."""\n'
    yield "    file: TextIO\n    tokens: int\n    retractions: int\n    rows: list[object]\n    reasons: Counter[WaitReason]\n"
    for name in LIFECYCLE_HOOKS:
        yield textwrap.indent(examples.pop(name), "    ") + "\n"
    for example in examples.values():
        yield f"\n{example}\n"


def _example(function: Callable[..., Any]) -> str:
    """What stands indented under "Example:" in a hook's docstring."""
    _, found, example = (inspect.getdoc(function) or "").partition("Example:\n\n")
    if not found:
        raise RuntimeError(f"the docstring of {function.__name__} has no example")
    return textwrap.dedent(example).rstrip()


def _classes(module: Any, *but: type) -> Iterator[str]:
    for name, value in vars(module).items():
        if inspect.isclass(value) and value.__module__ == module.__name__ and value not in but:
            yield from _class(name, value)


def _functions(module: Any) -> Iterator[str]:
    """Those that a plugin may call."""
    for name, value in vars(module).items():
        if inspect.isfunction(value) and value.__module__ == module.__name__ and name in hookspecs.__all__:
            yield f"### `{name}{_signature(value)}`\n"
            yield f"{_prose(value)}\n"


def _tables(module: Any) -> Iterator[str]:
    """Which words go with which member of an enum."""
    for name, value in vars(module).items():
        if (
            name in hookspecs.__all__
            and isinstance(value, Mapping)
            and all(isinstance(one, tuple) for one in value.values())
        ):
            rows = (f"{key}: {', '.join(map(repr, words))}" for key, words in value.items())
            yield f"### {name}\n\n```python\n" + "\n".join(rows) + "\n```\n"


def _class(name: str, value: type) -> Iterator[str]:
    yield f"### {name}\n"
    # Not inspect.getdoc: it would inherit what Python says of every protocol.
    doc = inspect.cleandoc(value.__dict__.get("__doc__") or "")
    if doc and not doc.startswith(f"{name}("):
        yield f"{_block(doc)}\n"
    if fields := _fields(value):
        yield f"```python\n{fields}\n```\n"
    for member, content in vars(value).items():
        if member.startswith("_"):
            continue
        if isinstance(content, property):
            assert content.fget is not None
            kind = _plain(str(inspect.signature(content.fget).return_annotation))
            about = f": {inspect.cleandoc(content.fget.__doc__)}" if content.fget.__doc__ else ""
            yield f"- `{member}: {kind}`{about}\n"
        elif isinstance(content, classmethod):
            yield f"- **`{name}.{member}{_signature(getattr(value, member))}`**\n"
            yield textwrap.indent(_prose(getattr(value, member)), "  ") + "\n"
        elif inspect.isfunction(content) and content.__doc__:
            required = " (required)" if getattr(content, "__isabstractmethod__", False) else ""
            yield f"- **`{member}{_signature(content)}`**{required}\n"
            yield textwrap.indent(_prose(content), "  ") + "\n"


def _fields(value: type) -> str:
    """What its maker takes, or its members, one a line."""
    if issubclass(value, enum.Enum):
        return "\n".join(f"{value.__name__}.{member.name}" for member in value)
    if dataclasses.is_dataclass(value):
        own = [field for field in dataclasses.fields(value) if field.name in inspect.get_annotations(value)]
        return "\n".join(f"{field.name}: {_plain(str(field.type))}{_default(field)}" for field in own)
    kinds = {name: kind for name, kind in inspect.get_annotations(value).items() if not name.startswith("_")}
    if kinds and "__init__" not in vars(value):
        given = {name: f" = {vars(value)[name]!r}" for name in kinds if name in vars(value)}
        return "\n".join(f"{name}: {_plain(str(kind))}{given.get(name, '')}" for name, kind in kinds.items())
    if "__init__" in vars(value) and not getattr(value, "_is_protocol", False):
        return f"{value.__name__}{_signature(value.__init__)}".replace(" -> None", "")
    return ""


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        made = field.default_factory()
        return f" = {made!r}" if isinstance(made, dict | frozenset | list) else " = NO_SLOTS"
    return "" if field.default is dataclasses.MISSING else f" = {_value(field.default)}"


def _value(value: Any) -> str:
    return str(value) if isinstance(value, enum.Enum) else repr(value)


def _signature(function: Callable[..., Any]) -> str:
    text = str(inspect.signature(function)).replace("(self, ", "(").replace("(self)", "()")
    return re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", _plain(text))


def _plain(annotation: str) -> str:
    return annotation.replace("'", "")


def _prose(function: Callable[..., Any]) -> str:
    return _block(inspect.getdoc(function) or "")


def _block(doc: str) -> str:
    """Docstrings align their field lists with spaces; Markdown keeps that only in a code block."""
    out = []
    for paragraph in doc.split("\n\n"):
        aligned = any("   " in line.strip() for line in paragraph.splitlines())
        indented = paragraph.startswith("    ")
        out.append(f"```text\n{paragraph}\n```" if aligned and not indented else paragraph)
    return "\n\n".join(out)
