"""The parameters of generation that a chat sends, under OpenAI's names."""

from __future__ import annotations

import json
from typing import Any

from jackfield.config.errors import ConfigurationError, did_you_mean
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.limits import DEFAULT_LIMITS, RequestLimits
from jackfield.managers.fields.sampling_checks import MAX_COUNT
from jackfield.managers.fields.sampling_params import FIELDS, make_sampling_params

DEFAULTS = {"max_tokens": 1024}

_NOT_HERE = ("n", "best_of", "max_new_tokens", "stream_interval", "sampling_seed", "min_new_tokens")
_OF_A_SERVER = ("reasoning_effort", "chat_template_kwargs")


class Params:
    """remote: for a server, which has a few more and may know less. limits: those of the run; a server has its own."""

    def __init__(self, *, remote: bool, limits: RequestLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        own = tuple(name for name in FIELDS if name not in _NOT_HERE)
        self.known = tuple(sorted((*own, "max_tokens", *(_OF_A_SERVER if remote else ()))))
        self.values: dict[str, Any] = dict(DEFAULTS)

    def set(self, written: str) -> None:
        """NAME=VALUE, the value JSON or a plain text; NAME= takes it away. Raises ConfigurationError saying what is wrong."""
        name, sign, text = written.partition("=")
        name, text = name.strip().replace("-", "_"), text.strip()
        if not sign:
            raise ConfigurationError(f"{written!r} is no NAME=VALUE, such as temperature=0.7")
        if name not in self.known:
            raise ConfigurationError(
                f"there is no parameter {name!r}{did_you_mean(name, self.known, noun='parameters')}"
            )
        if not text:
            self.values.pop(name, None)
            return
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        if name not in _OF_A_SERVER:
            try:
                make_sampling_params(
                    {_native(name): value},
                    defaults={},
                    vocab_size=MAX_COUNT,
                    limits=self._limits,
                    processors=lambda given: {},
                )
            except RequestError as error:
                raise ConfigurationError(error.message.replace(_native(name), name)) from error
        self.values[name] = value

    def reset(self) -> None:
        self.values = dict(DEFAULTS)

    def written(self) -> list[str]:
        """As `set` reads them."""
        return [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in self.values.items()]

    @staticmethod
    def native(values: dict[str, Any]) -> dict[str, Any]:
        """Under the names of the engine's sampling parameters."""
        return {_native(name): value for name, value in values.items()}


def _native(name: str) -> str:
    return "max_new_tokens" if name == "max_tokens" else name
