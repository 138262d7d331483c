"""Writes docs/reference/ from the code. With --check says whether it is up to date."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jackfield.config.fields import FieldFacts, facts_of
from jackfield.config.server_args import ServerArgs
from jackfield.hookspecs import KINDS
from jackfield.observability.metrics import GROUPS, PREFIX
from jackfield.stack.discovery.scan import discover
from jackfield.stack.selection.own import OWN_DISTRIBUTIONS

REFERENCE = Path(__file__).parent / "reference"
sys.path.insert(0, str(Path(__file__).parent))
from clients_page import clients  # noqa: E402 - pages of their own, beside this file
from compatibility import compatibility  # noqa: E402
from endpoint_pages import endpoints  # noqa: E402
from grammar_page import grammars  # noqa: E402
from hook_pages import hook_examples, hooks  # noqa: E402

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


PAGES = {
    "clients.md": clients,
    "compatibility.md": compatibility,
    "endpoints.md": endpoints,
    "options.md": options,
    "grammars.md": grammars,
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
