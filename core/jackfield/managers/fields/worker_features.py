"""Fields of a request that not every worker can serve: what a worker has not declared in its manifest is never sent to it, so
the request is refused where it comes in. Knows manifests' words and fields; not which worker there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.ipc.messages import SamplingParams
from jackfield.managers.errors import RequestError

PENALTIES = "penalties"
LOGIT_BIAS = "logit_bias"
MIN_NEW_TOKENS = "min_new_tokens"
LOGITS_PROCESSORS = "logits_processors"
LOGPROBS = "logprobs"
PROMPT_LOGPROBS = "prompt_logprobs"

FEATURE_OF: Mapping[str, str] = MappingProxyType(
    {
        "frequency_penalty": PENALTIES,
        "presence_penalty": PENALTIES,
        "repetition_penalty": PENALTIES,
        "logit_bias": LOGIT_BIAS,
        "min_new_tokens": MIN_NEW_TOKENS,
        "logits_processors": LOGITS_PROCESSORS,
    }
)
"""Field of `SamplingParams` -> the feature that a worker must declare for any value but the default."""

_NEUTRAL = SamplingParams()


@dataclass(frozen=True, kw_only=True)
class WorkerFeatures:
    """name: the worker plugin's; declared: the features of its manifest."""

    name: str = "worker"
    declared: frozenset[str] = frozenset()

    def check(self, params: SamplingParams) -> None:
        """Raises RequestError naming the first field that the worker does not serve."""
        for field, feature in self.lacking(params):
            raise RequestError(self._refusal(field, feature), param=field, code="not_supported")

    def check_logprobs(self, *, prompt: bool) -> None:
        """For a request that wants log-probabilities; prompt: those of its prompt too. Raises RequestError."""
        for field, feature, asks in (
            ("return_logprob", LOGPROBS, True),
            ("logprob_start_len", PROMPT_LOGPROBS, prompt),
        ):
            if asks and feature not in self.declared:
                raise RequestError(self._refusal(field, feature), param=field, code="not_supported")

    def check_defaults(self, params: SamplingParams) -> None:
        """The same for what the operator or the checkpoint gives to every request. Raises ConfigurationError."""
        for field, feature in self.lacking(params):
            raise ConfigurationError(f"default sampling parameters: {self._refusal(field, feature)}")

    def lacking(self, params: SamplingParams) -> list[tuple[str, str]]:
        """What these settings ask for in vain: (field, feature)."""
        return [
            (field, feature)
            for field, feature in FEATURE_OF.items()
            if feature not in self.declared and _asks(params, field)
        ]

    def _refusal(self, field: str, feature: str) -> str:
        return f"{field} is not supported by this server: its worker {self.name!r} does not declare {feature!r}"


def _asks(params: SamplingParams, field: str) -> Any:
    return getattr(params, field) != getattr(_NEUTRAL, field)
