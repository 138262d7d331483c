"""The page docs/reference/grammars.md: what each grammar backend honours, asked of its own `check` with the cases that its tests
prove it with."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator

from jackfield.grammars.formats import FORMATS
from jackfield.grammars.schema_keywords import ANNOTATIONS, DIALECTS, KEYWORDS
from jackfield.grammars.schema_rules import SchemaRules, check_schema
from jackfield.grammars.structural_tags import FORMATS as TAGS
from jackfield.hookspecs import GrammarError
from jackfield.testing.schema_cases import CASES, FORMAT_CASES

BACKENDS = ("llguidance", "xgrammar")
WHEN_COMPILED = {
    ("llguidance", "oneOf"): "partly: where it can tell that no value fits two of the options",
    (
        "llguidance",
        "patternProperties",
    ): "partly: patterns that fit no name in common, and not a limited number beside `properties`",
}
"""What only compiling finds out."""


def grammars() -> Iterator[str]:
    rules: dict[str, SchemaRules] = {
        name: importlib.import_module(f"jackfield_grammar_{name}.schema").RULES for name in BACKENDS
    }
    yield "# What grammar backends honour\n"
    yield (
        "A request's schema, pattern or grammar is honoured in full or refused with 400, the keyword and its JSON pointer: "
        "nothing is loosened. A keyword is honoured only if tests prove with values that break it that the masks do not let "
        "them through; the examples below are such cases. [Constrained output](../constrained-output.md) says how to ask, "
        "[the decision](../decisions/0014-grammar-backends.md) why llguidance is the default.\n"
    )
    yield "## JSON Schema (draft 2020-12)\n"
    yield f"| keyword | {' | '.join(BACKENDS)} |\n|---|{'---|' * len(BACKENDS)}"
    for keyword in KEYWORDS:
        if keyword in ("$defs", "definitions"):
            continue
        yield f"| `{keyword}` | {' | '.join(_answer(keyword, rules[name]) for name in BACKENDS)} |"
    yield ""
    yield (
        "`$defs` and `definitions` hold schemas for `$ref`, which is followed within the schema only (`#`, `#/...`). Without any "
        f"effect: {_list(sorted(ANNOTATIONS))}, keywords that begin with `x-`, and `$id` at the root. `$schema` may be "
        f"{_list(DIALECTS)}; all are read as 2020-12. Any other keyword is refused, with the nearest that there is.\n"
    )
    yield (
        "Refused for every backend: a schema that no finite value satisfies, a `$ref` that leads to itself, numbers beyond "
        "2^53 or with an exponent, a name that comes twice in an object.\n"
    )
    yield "Formats, by regular expressions of our own:\n"
    yield "| format | for example | not |\n|---|---|---|"
    for name in FORMATS:
        valid, violating = FORMAT_CASES[name]
        yield f"| `{name}` | `{valid[0]}` | `{next(text for text in violating if text)}` |"
    yield "\n## Regular expressions\n"
    yield _prose("jackfield.grammars.regex_syntax", 1)
    yield "\n## EBNF\n"
    yield _prose("jackfield.grammars.ebnf_reader", 1)
    yield "\n## Structural tags\n"
    yield f"Formats: {_list(TAGS)}; the elder shape `structures` and `triggers` too.\n"
    yield _prose("jackfield.grammars.structural_tags", 1)
    yield "\n## Of what it is made\n"
    yield "| backend | its own limits |\n|---|---|"
    for name in BACKENDS:
        text = _prose(f"jackfield_grammar_{name}.schema", 1).replace("\n", " ").strip()
        yield f"| {name} | {text} |"


def _prose(module: str, skip: int) -> str:
    doc = importlib.import_module(module).__doc__ or ""
    return "\n\n".join(doc.strip().split("\n\n")[skip:])


def _list(names: object) -> str:
    return ", ".join(f"`{name}`" for name in names)  # type: ignore[attr-defined]


def _answer(keyword: str, rules: SchemaRules) -> str:
    """yes, no, or the cases of it that are refused, and why."""
    if keyword not in rules.keywords:
        return "no"
    if (rules.backend, keyword) in WHEN_COMPILED:
        return WHEN_COMPILED[rules.backend, keyword]
    refused = []
    for case in CASES:
        if case.keyword != keyword:
            continue
        try:
            check_schema(json.dumps(case.schema), rules)
        except GrammarError as wrong:
            refused.append(wrong.message.partition(": ")[2])
    return "yes" if not refused else "partly: " + "; ".join(dict.fromkeys(refused)).replace("|", "\\|")
