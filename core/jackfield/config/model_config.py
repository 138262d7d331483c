"""What the runtime reads from a model's Hugging Face style configuration, whatever file it came from.

Knows the entries that every architecture shares (vocabulary, context, end tokens, sampling defaults, dtype); shapes of
layers are the model plugin's business. Free of torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from jackfield.config.context_length import derive_context_length
from jackfield.config.dtype import checkpoint_dtype
from jackfield.config.errors import ConfigurationError
from jackfield.config.layer import merge_overrides

SAMPLING_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Entries of generation_config that become a request's defaults."""

_NEUTRAL: Mapping[str, object] = {
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "typical_p": 1.0,
}
"""Entries of generation_config that change what is sampled and that this version does not apply, unless they say
nothing; each that says something becomes a note."""

_OVERRIDE = "mend the file, or set it with --json-model-override-args"


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One model's configuration, checked.

    architecture              the first of `architectures`
    context_length            longest sequence this run allows, tokens: `--context-length`, else the derived one
    derived_context_length    longest sequence the model allows by its own configuration; None: it does not say
    dtype                     the checkpoint's dtype, a torch name; None: the configuration does not say
    eos_token_ids             end tokens of the config and of its generation_config, in that order, without repeats
    default_sampling_params   what generation_config says of `SAMPLING_DEFAULTS`
    hf                        the whole configuration with the overrides laid over it
    source                    the file it came from, in words, for messages
    notes                     what was found in the configuration and is not applied, one sentence each
    """

    architecture: str
    vocab_size: int
    context_length: int
    derived_context_length: int | None
    dtype: str | None
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    pad_token_id: int | None
    default_sampling_params: Mapping[str, Any]
    hf: Mapping[str, Any]
    source: str
    notes: tuple[str, ...] = field(default=())

    @classmethod
    def from_hf(
        cls,
        config: Mapping[str, Any],
        *,
        source: str,
        overrides: Mapping[str, Any] | None = None,
        context_length: int | None = None,
    ) -> ModelConfig:
        """From a configuration in Hugging Face's shape, generation settings under `generation_config`.

        `overrides` (`--json-model-override-args`) are laid over it first. Raises ConfigurationError naming `source`.
        """
        hf = merge_overrides(config, overrides)
        text = hf["text_config"] if isinstance(hf.get("text_config"), Mapping) else {}
        generation = hf.get("generation_config") or {}
        if not isinstance(generation, Mapping):
            raise _wrong(source, "generation_config", generation, "an object")
        derived = derive_context_length({**text, **hf}, source)
        defaults, notes = _sampling(generation, source)
        vocab_size = _positive({**text, **hf}, "vocab_size", source)
        return cls(
            architecture=_architecture(hf, source),
            vocab_size=vocab_size,
            context_length=_context(context_length, derived, source),
            derived_context_length=derived,
            dtype=checkpoint_dtype({**text, **hf}, source),
            eos_token_ids=_eos(({**text, **hf}, generation), vocab_size, source),
            bos_token_id=_token_id({**text, **hf}, "bos_token_id", source),
            pad_token_id=_token_id({**text, **hf}, "pad_token_id", source),
            default_sampling_params=defaults,
            hf=hf,
            source=source,
            notes=notes,
        )


def _architecture(hf: Mapping[str, Any], source: str) -> str:
    names = hf.get("architectures")
    if not names:
        raise ConfigurationError(
            f"{source}: the entry 'architectures' is missing, so the model is unknown; {_OVERRIDE}"
        )
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise _wrong(source, "architectures", names, "a list of names")
    first: str = names[0]
    return first


def _context(wanted: int | None, derived: int | None, source: str) -> int:
    if derived is None:
        if wanted is None:
            raise ConfigurationError(
                f"{source}: no entry says how long a sequence may be (max_position_embeddings); say it with "
                "--context-length"
            )
        return wanted
    if wanted is not None and wanted > derived:
        raise ConfigurationError(
            f"--context-length {wanted} is longer than the {derived} tokens that the model allows ({source}); lower it, "
            "or give the model a longer range with --json-model-override-args (max_position_embeddings, or a rope "
            "scaling)"
        )
    return wanted or derived


def _eos(places: tuple[Mapping[str, Any], ...], vocab_size: int, source: str) -> tuple[int, ...]:
    found: list[int] = []
    for place in places:
        value = place.get("eos_token_id")
        for item in value if isinstance(value, list) else [value]:
            if _is_absent(item):
                continue
            if not _is_id(item):
                raise _wrong(source, "eos_token_id", value, "a token id or a list of them")
            if item >= vocab_size:
                raise _wrong(source, "eos_token_id", value, f"within the vocabulary of {vocab_size}")
            found.append(item)
    return tuple(dict.fromkeys(found))


def _token_id(hf: Mapping[str, Any], name: str, source: str) -> int | None:
    value = hf.get(name)
    if _is_absent(value):
        return None
    if not _is_id(value):
        raise _wrong(source, name, value, "a token id")
    return value


def _is_absent(value: object) -> bool:
    # -1 stands for "none" in some older checkpoints.
    return value is None or (value == -1 and not isinstance(value, bool))


def _is_id(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _positive(hf: Mapping[str, Any], name: str, source: str) -> int:
    value = hf.get(name)
    if value is None:
        raise ConfigurationError(f"{source}: the entry {name!r} is missing; {_OVERRIDE}")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _wrong(source, name, value, "a positive whole number")
    return value


def _sampling(generation: Mapping[str, Any], source: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Defaults and notes. With `do_sample` false the entries of the draw are without meaning, there and here."""
    notes = tuple(
        f"{source}: generation_config's {name} = {generation[name]!r} is not applied by this version"
        for name, neutral in _NEUTRAL.items()
        if generation.get(name) is not None and generation[name] != neutral
    )
    defaults = {}
    for name in ("repetition_penalty",) if generation.get("do_sample") is False else SAMPLING_DEFAULTS:
        value = generation.get(name)
        if value is None:
            continue
        number = isinstance(value, int if name == "top_k" else int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value):
            raise _wrong(source, f"generation_config.{name}", value, "a number")
        defaults[name] = value
    return defaults, notes


def _wrong(source: str, name: str, value: object, expected: str) -> ConfigurationError:
    return ConfigurationError(f"{source}: the entry {name!r} is {value!r}, not {expected}; {_OVERRIDE}")
