"""What a request may give to the run's logits processors: JSON values against the models that their manifests name.

Used twice: by the main process, so that the client is told, and where the processors run, to make the objects they get.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from jackfield.config.errors import did_you_mean
from jackfield.config.problems import plain_words
from jackfield.hookspecs import KINDS
from jackfield.stack.errors import PluginLoadError
from jackfield.stack.loading.imports import import_object
from jackfield.stack.loading.load import LoadedStack
from jackfield.stack.loading.options import unknown_fields
from jackfield.stack.resolved import SelectedPlugin

KIND = "logits_processor"
FIELD = KINDS[KIND].field
MAX_VALUE_CHARS = 80


class BadParameters(ValueError):
    """param: the dotted path of the field, as the client wrote it."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class RequestParameters:
    """The logits processors that requests may name, in the stack's order."""

    def __init__(self, loaded: LoadedStack) -> None:
        """Raises PluginLoadError if a manifest names no pydantic model."""
        self._models = {plugin.selected.instance: parameters_model(plugin.selected) for plugin in loaded.of(KIND)}
        self._others = [rejected.name for rejected in loaded.resolved.rejected if rejected.kind == KIND]

    def checked(self, given: Any) -> dict[str, dict[str, Any]]:
        """Instance -> its parameters as plain JSON values, in the stack's order; null is absent. Raises BadParameters."""
        if not isinstance(given, Mapping):
            raise BadParameters(f"{FIELD} must be an object of processors and their parameters", FIELD)
        asked = {name: value for name, value in given.items() if value is not None}
        for name in asked:
            if name not in self._models:
                raise BadParameters(self._unknown(str(name)[:MAX_VALUE_CHARS]), FIELD)
        return {name: _plain(name, model, asked[name]) for name, model in self._models.items() if name in asked}

    def _unknown(self, name: str) -> str:
        flag = KINDS[KIND].flag
        if name in self._others:
            return f"{FIELD}: {name!r} is installed here, but not part of this server: it is started with {flag} {name}"
        if not self._models:
            near = did_you_mean(name, self._others, noun="installed") if self._others else ""
            return f"{FIELD}: there is no processor {name!r}; this server has none ({flag} NAME){near}"
        return f"{FIELD}: there is no processor {name!r}{did_you_mean(name, self._models, noun='here')} ({flag} NAME)"


def parameters_model(plugin: SelectedPlugin) -> type[BaseModel] | None:
    """Raises PluginLoadError."""
    reference = plugin.manifest.parameters
    if reference is None:
        return None
    model = import_object(reference, plugin)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise PluginLoadError(f"{plugin.described} names {reference} for its parameters, which is no pydantic model")
    return model


def parse_parameters(model: type[BaseModel] | None, values: Mapping[str, Any]) -> BaseModel | None:
    """What `RequestParameters` has checked, as the processor gets it."""
    return None if model is None else model.model_validate_json(json.dumps(values), strict=True)


def _plain(name: str, model: type[BaseModel] | None, given: Any) -> dict[str, Any]:
    where = f"{FIELD}.{name}"
    if not isinstance(given, Mapping):
        raise BadParameters(f"{where} must be an object of parameters", where)
    try:
        text = json.dumps(given, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadParameters(f"{where} is no JSON object: {error}", where) from error
    values: dict[str, Any] = json.loads(text)
    if model is None:
        if values:
            raise BadParameters(f"{where} takes no parameters, but {next(iter(values))!r} is given", where)
        return values
    for path, allowed in unknown_fields(model, values):
        at = ".".join((where, *(part[:MAX_VALUE_CHARS] for part in path)))
        raise BadParameters(f"{at}: unknown parameter{did_you_mean(path[-1], allowed, noun='allowed')}", at)
    try:
        model.model_validate_json(text, strict=True)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        at = ".".join((where, *(str(part)[:MAX_VALUE_CHARS] for part in detail["loc"])))
        message = "must be given" if detail["type"] == "missing" else plain_words(detail, table="an object")
        got = "" if detail["type"] == "missing" else f", not {repr(detail['input'])[:MAX_VALUE_CHARS]}"
        raise BadParameters(f"{at}: {message}{got}", at) from error
    return values
