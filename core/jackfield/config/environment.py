"""Reads settings from JACKFIELD_* environment variables. An unknown one stops the start: it was meant for something."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from jackfield.config.errors import either, nearest, refuse
from jackfield.config.fields import ENVIRONMENT_PREFIX, Shape, facts_of
from jackfield.config.layer import Layer
from jackfield.config.server_args import ServerArgs
from jackfield.config.text_values import parse_text
from jackfield.hookspecs.kinds import KINDS

STACK_VARIABLE = "JACKFIELD_STACK"

OTHER_VARIABLES: Mapping[str, str] = MappingProxyType({STACK_VARIABLE: "The stack file, unless --stack names one."})
"""Known variables that are no field of ServerArgs, with what they mean."""


def read_environment(environ: Mapping[str, str]) -> Layer:
    """Raises ConfigurationError naming every variable that is unknown, empty or malformed."""
    by_variable = {facts.variable: facts for facts in facts_of(ServerArgs).values()}
    by_field = {kind.field: kind for kind in KINDS.values() if not kind.exclusive}
    layer, problems = Layer(), []
    for variable in sorted(name for name in environ if name.startswith(ENVIRONMENT_PREFIX)):
        text, source = environ[variable], f"environment {variable}"
        facts = by_variable.get(variable)
        if facts is None:
            if variable not in OTHER_VARIABLES:
                problems.append(f"unknown environment variable {variable}{_meant(variable, by_variable)}")
        elif not text:
            problems.append(f"{source}: is set to nothing; unset it or give it a value")
        else:
            try:
                value = parse_text(facts, text)
                if facts.shape is Shape.OPTIONS:
                    layer.set_options(value, source)
                    continue
                if facts.name in by_field:
                    value = layer.fold_use_options(by_field[facts.name].name, value, source)
                layer.set(facts.name, value, source)
            except ValueError as error:
                problems.append(f"{source}: {error}")
    if problems:
        raise refuse(problems)
    return layer


def _meant(variable: str, fields: Iterable[str]) -> str:
    # The prefix, which all share, would make every name look alike.
    known = [name.removeprefix(ENVIRONMENT_PREFIX) for name in (*fields, *OTHER_VARIABLES)]
    near = nearest(variable.removeprefix(ENVIRONMENT_PREFIX), known)
    if not near:
        return "; the known ones are the flags of --help in capitals, such as JACKFIELD_MODEL_PATH for --model-path"
    return f"; did you mean {either(ENVIRONMENT_PREFIX + name for name in near)}?"
