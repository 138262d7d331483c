"""Writes docs/reference/ from the code. With --check says whether it is up to date."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from jackfield import hookspecs
from jackfield.config.fields import FieldFacts, facts_of
from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.http.route_table import ROUTES
from jackfield.entrypoints.http.schemas.common import Native, OpenAI
from jackfield.hookspecs import KINDS, LIFECYCLE_HOOKS, SPECS, common, decisions, device, kv, logprobs, mover, tables
from jackfield.observability.metrics import GROUPS, PREFIX
from jackfield.stack.discovery.scan import discover
from jackfield.stack.loading.hooks import hook_table
from jackfield.stack.selection.own import OWN_DISTRIBUTIONS

REFERENCE = Path(__file__).parent / "reference"
sys.path.insert(0, str(Path(__file__).parent))
from compatibility import compatibility  # noqa: E402 - a page of its own, beside this file

NOTE = "<!-- Written by `make docs` from the code; do not edit. -->\n\n"


def options() -> Iterator[str]:
    yield "# Options\n"
    yield (
        "Every setting of a run. A later source wins: default, stack file (`--stack FILE`), environment, command line. In a "
        "stack file the key is the field's name; `Engine(...)` takes the same names.\n\n"
        "Options of [plugins](plugins.md) have flags too: `--<flag of the kind>.<instance>.<option>`, such as "
        "`--schedule-policy.lpm.max-queue 64`. They are typed by the plugin, and `--help` shows those of the plugins that the "
        "line or the stack file names; a switch is `--x` or `--no-x`, a list is written with commas or by repeating the flag, "
        "what lies deeper with further dots. In the environment, `JACKFIELD_OPTIONS` holds a TOML table of them.\n"
    )
    groups: dict[str, list[FieldFacts]] = {}
    for facts in facts_of(ServerArgs).values():
        groups.setdefault(facts.group, []).append(facts)
    for group, fields in groups.items():
        yield f"## {group}\n"
        yield "| flag | environment | value | default | meaning |\n|---|---|---|---|---|"
        for facts in fields:
            flags = ", ".join(f"`{flag}`" for flag in (facts.flag, *facts.aliases))
            value = " \\| ".join(f"`{choice}`" for choice in facts.choices) or facts.shape.value
            default = f"`{facts.default_text}`" if facts.default_text else ""
            yield f"| {flags} | `{facts.variable}` | {value} | {default} | {facts.description} |"
        yield ""


def hooks() -> Iterator[str]:
    yield "# Hooks\n"
    yield (
        "What a plugin implements, by kind. A provider hook is called once at start and returns an object; the runtime calls "
        "that object. Every name below comes from `jackfield.hookspecs`: `from jackfield.hookspecs import hookimpl, Freed`. What "
        "several kinds share stands at the [end](#shared): [amounts and problems](#jackfieldhookspecscommon), [the "
        "device](#jackfieldhookspecsdevice), [KV memory and its "
        "layouts](#jackfieldhookspecskv), [what a policy sees of requests](#jackfieldhookspecstables), [the record of "
        "decisions](#jackfieldhookspecsdecisions), [log-probabilities](#jackfieldhookspecslogprobs), [copies of "
        "KV](#jackfieldhookspecsmover). Arguments of all records "
        "are keyword-only.\n"
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
    for module in (common, device, kv, tables, decisions, logprobs, mover):
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


def stack_file() -> Iterator[str]:
    yield "# The stack file\n"
    yield (
        "One TOML file says which plugins serve and with which options: `--stack FILE` or `JACKFIELD_STACK`. At the top level "
        "stands any [option](options.md) under its field name. Relative paths count from the file's own folder, those among "
        "the options of plugins too; on the command line they count from where you are.\n"
    )
    yield "```toml"
    yield 'model_path = "./my-model"'
    yield "max_running_requests = 64\n"
    yield "[stack]"
    yield 'attention = { prefill = "torch", decode = "torch" }   # or one name for both'
    yield 'cache_policy = "radix"'
    yield 'schedule_policy = "fcfs"'
    yield 'observer = [{ plugin = "jsonl", as = "audit", options = { directory = "./audit" } }]\n'
    yield '[options."cache.radix"]            # kind.instance; the instance is the plugin\'s name unless `as` gave another'
    yield 'eviction = "lru"'
    yield "```\n"
    yield "## Keys of `[stack]`\n"
    yield "| key | kind | how many | the same as |\n|---|---|---|---|"
    for kind in KINDS.values():
        keys = " or ".join(f"`{key}`" for key in dict.fromkeys((kind.name, kind.field)))
        many = "a name" if kind.exclusive else "a name, a table { plugin, as, options }, or a list of them"
        if kind.name == "attention":
            many = 'a name, or { prefill = "...", decode = "..." }'
        yield f"| {keys} | {kind.name} | {many} | `{kind.flag}` |"
    yield ""
    yield "## Several stacks in one file\n"
    yield (
        "Under `[stacks.NAME]` stands the same shape again. `--stack FILE#NAME` (also in `JACKFIELD_STACK` and "
        "`Engine(stack=...)`) chooses one: it has what stands at the top level, and its own laid over it. Options are merged one "
        "by one, all else is replaced; a plugin that the named stack replaces goes with its options. `--stack FILE` is the top "
        "level alone, and a file that has nothing there wants a name. All stacks of a file are checked, whichever runs.\n"
    )
    yield "```toml"
    yield 'model_path = "./my-model"\n'
    yield "[stack]"
    yield 'schedule_policy = "fcfs"\n'
    yield "[stacks.fair.stack]"
    yield 'schedule_policy = "fair-share"\n'
    yield '[stacks.fair.options."schedule_policy.fair-share"]'
    yield "output_weight = 3.0\n"
    yield "[stacks.watched]"
    yield "max_running_requests = 8\n"
    yield "[stacks.watched.stack]"
    yield "observer = ["
    yield '  { plugin = "jsonl", as = "steps", options = { directory = "./steps" } },'
    yield '  { plugin = "jsonl", as = "lives", options = { directory = "./lives", steps = false } },'
    yield "]"
    yield "```\n"
    yield "## Several uses of one plugin\n"
    yield (
        "Where the table says so, a list names several uses in their order, and one plugin may stand there more than once: `as` "
        "gives each use a name of its own, under which its options, metrics and faults are kept. Each use is an object of its "
        "own.\n"
    )
    yield "## Plugins that are no packages\n"
    yield '`plugin = ["./my_policy.py"]` at the top level takes [one-file plugins](../one-file-plugins.md).\n'
    yield "A key, plugin, option or value that does not exist stops the start and names the nearest that does.\n"


def plugins() -> Iterator[str]:
    yield "# Plugins of this repository\n"
    yield "What each claims in its manifest, and its options.\n"
    yield (
        "An option is given as a flag (`--schedule-policy.lpm.max-queue 64`; `--help` lists those of the plugins that the line "
        "names), as `--option schedule_policy.lpm.max_queue=64`, or in the stack file.\n"
    )
    for kind in KINDS:
        # Not those that whoever runs this has installed beside, the tutorial's for one.
        own = (row for row in discover().rows(kind) if row.distribution in OWN_DISTRIBUTIONS)
        rows = sorted(own, key=lambda row: row.name)
        if rows:
            yield f"## {kind}\n"
        for row in rows:
            manifest = row.manifest
            if manifest is None:
                raise SystemExit(f"{kind}.{row.name}: {row.problem}")
            yield f"### {row.name}\n"
            yield f"{manifest.summary}. Distribution `{row.distribution}`.\n"
            for claim in ("devices", "dtypes", "layouts", "features", "needs", "encodings", "architectures", "files"):
                if values := getattr(manifest, claim):
                    yield f"- {claim}: {', '.join(f'`{value}`' for value in values)}"
            yield f"- priority in automatic selection: {manifest.priority}\n"
            if manifest.options:
                yield from _options_table(_imported(manifest.options))
            if manifest.parameters:
                yield from _options_table(_imported(manifest.parameters), "parameter of a request")


def metrics() -> Iterator[str]:
    yield "# Metrics\n"
    yield (
        "What the sinks of `--metrics` get; with `--metrics prometheus`, what `/metrics` shows. Names are SGLang's where it has "
        f"one, with the prefix `{PREFIX}`. Every series also has the label `model_name`, the served name. No label's value comes "
        "from a client: what is not the server's own is `other`.\n"
    )
    for heading, group in GROUPS.items():
        yield f"## {heading}\n"
        yield "| name | type | labels | meaning |\n|---|---|---|---|"
        for metric in group:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            yield f"| `{PREFIX}{metric.name}` | {metric.type} | {labels} | {metric.help} |"
        yield ""


def _imported(dotted: str) -> Any:
    module, _, name = dotted.partition(":")
    return getattr(importlib.import_module(module), name)


def _options_table(model: Any, what: str = "option") -> Iterator[str]:
    yield f"| {what} | type | default | meaning |\n|---|---|---|---|"
    for name, field in model.model_fields.items():
        kind = field.annotation.__name__ if inspect.isclass(field.annotation) else str(field.annotation)
        kind = kind.replace("|", "\\|").replace("typing.", "")
        default = "required" if field.is_required() else f"`{field.get_default(call_default_factory=True)!r}`"
        yield f"| `{name}` | {kind} | {default} | {field.description or ''} |"
    yield ""


def endpoints() -> Iterator[str]:
    yield "# Endpoints\n"
    yield (
        "Every route of `jackfield serve`. Level `open` needs no key; `key` needs the API key if one is set; `admin` needs the "
        "admin key if any key is set ([security](../security.md)). A path that is not here is denied like a `key` route before "
        "it is not found. Errors have one shape everywhere: "
        '`{"error": {"message", "type", "param", "code"}}`, with the same status.\n'
    )
    yield "| path | methods | level | what it does |\n|---|---|---|---|"
    for route in ROUTES:
        yield f"| `{_path(route)}` | {', '.join(route.methods)} | {route.level.value} | {route.summary} |"
    yield ""
    models: list[Any] = []
    for route in ROUTES:
        if not (route.request or route.response or route.query or route.answer):
            continue
        yield f"## {_path(route)}\n"
        for name, meaning in route.query.items():
            yield f"- query `{name}`: {meaning}"
        if route.request is not None:
            yield f"- request: [{route.request.__name__}](#{route.request.__name__.lower()})"
        if route.response is not None:
            yield f"- answer: [{route.response.__name__}](#{route.response.__name__.lower()})"
        if route.answer:
            yield f"- answer: {route.answer}"
        if route.stream is not None:
            name = route.stream.__name__
            link = f"[{name}](#{name.lower()})"
            yield f"- with `stream`: server-sent events of {link}, then `data: [DONE]`, unless an error ends them"
        yield ""
        models.extend(model for model in (route.request, route.response, route.stream) if model is not None)
    yield "## Bodies\n"
    done: list[Any] = []
    while models:
        model = models.pop(0)
        if model not in done:
            done.append(model)
            yield from _body(model)
            models.extend(_models_in(model))


def _path(route: Any) -> str:
    return str(route.path).replace(":path", "")


def _body(model: Any) -> Iterator[str]:
    yield f"### {model.__name__}\n"
    # Without a docstring of its own a model has its base's.
    if "__doc__" in vars(model) and model.__doc__:
        yield f"{inspect.cleandoc(model.__doc__)}\n"
    not_yet = []
    yield "| field | type | meaning |\n|---|---|---|"
    for name, field in model.model_fields.items():
        if field.description and field.description.startswith("Not supported by this version: refused unless it asks"):
            not_yet.append(f"`{name}`")
            continue
        required = " (required)" if field.is_required() and issubclass(model, Native | OpenAI) else ""
        yield f"| `{name}`{required} | {_type(field.annotation)} | {field.description or ''} |"
    yield ""
    if not_yet:
        yield f"Known and not supported by this version, so refused unless they ask for nothing: {', '.join(not_yet)}.\n"


def _type(annotation: Any) -> str:
    if annotation is type(None):
        return "null"
    if annotation is Any:
        return "any"
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(inner[0])
    if origin in (Union, UnionType):
        return " or ".join(_type(arm) for arm in inner)
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in inner)
    if origin is list:
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return "object"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return str({str: "text", int: "integer", float: "number", bool: "true or false"}[annotation])


def _models_in(model: Any) -> list[Any]:
    found: list[Any] = []

    def look(annotation: Any) -> None:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            found.append(annotation)
        for inner in get_args(annotation):
            look(inner)

    for field in model.model_fields.values():
        look(field.annotation)
    return found


PAGES = {
    "compatibility.md": compatibility,
    "endpoints.md": endpoints,
    "options.md": options,
    "hooks.md": hooks,
    "hook_examples.py": hook_examples,
    "stack-file.md": stack_file,
    "plugins.md": plugins,
    "metrics.md": metrics,
}


def main() -> int:
    stale = []
    for name, page in PAGES.items():
        text = (NOTE if name.endswith(".md") else "") + "\n".join(page()).rstrip() + "\n"
        file = REFERENCE / name
        if "--check" in sys.argv:
            if not file.exists() or file.read_text() != text:
                stale.append(name)
        else:
            REFERENCE.mkdir(exist_ok=True)
            file.write_text(text)
    if stale:
        print(f"docs/reference is out of date ({', '.join(stale)}): run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
