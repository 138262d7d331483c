"""What comes out of an encoder, by the checkpoint's own words: which poolings make an embedding, and what its labels are.

Reads `sentence_transformers_files` (as loaders give it) and config.json. No torch. Raises UnsupportedModel naming the entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jackfield.hookspecs import CLASSIFICATION, EMBEDDING, Pooling, UnsupportedModel

MODES = ("cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken")
"""In the order in which sentence-transformers puts them one behind the other."""

_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
_ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "identity", "Softmax": "softmax"}
MAX_LABELS = 1 << 20


def embedding(config: Mapping[str, Any], hidden_size: int) -> tuple[tuple[str, ...], Pooling]:
    """The poolings, and what they make. Without sentence-transformers' files: the first token's state, of length 1."""
    files = config.get("sentence_transformers_files") or {}
    modules = files.get("modules", ("Transformer", "Pooling", "Normalize"))
    if (unknown := sorted(set(modules) - {"Transformer", "Pooling", "Normalize"})) or "Pooling" not in modules:
        what = f"has {', '.join(unknown)}" if unknown else "has no Pooling"
        raise UnsupportedModel(f"modules.json {what}; Transformer, Pooling and perhaps Normalize are served")
    given = files.get("pooling")
    modes = ("cls",) if given is None else _modes(given)
    dimensions = config.get("matryoshka_dimensions")
    return modes, Pooling(
        kind=EMBEDDING,
        width=hidden_size * len(modes),
        normalize="Normalize" in modules,
        matryoshka=bool(dimensions) or config.get("is_matryoshka") is True,
        dimensions=tuple(dimensions)
        if isinstance(dimensions, list) and all(type(one) is int for one in dimensions)
        else (),
    )


def _modes(given: Mapping[str, Any]) -> tuple[str, ...]:
    if given.get("include_prompt") is False:
        raise UnsupportedModel("include_prompt: false in the pooling's config.json is not supported")
    named = given.get("pooling_mode")
    if named is not None:  # the newer layout has one word, or several
        words = [named] if isinstance(named, str) else list(named)
        known = {"mean_sqrt_len_tokens": "mean_sqrt_len"}
        found = {known.get(word, word) for word in words}
        if unknown := sorted(found - set(MODES)):
            raise UnsupportedModel(f"pooling_mode {', '.join(unknown)} is not supported; known: {', '.join(MODES)}")
    else:
        found = {mode for mode, flag in _FLAGS.items() if given.get(flag) is True}
        others = [key for key, on in given.items() if key.startswith("pooling_mode") and on is True]
        if unknown := sorted(set(others) - set(_FLAGS.values())):
            raise UnsupportedModel(f"{', '.join(unknown)} is not supported; known: {', '.join(_FLAGS.values())}")
    if not found:
        raise UnsupportedModel("the pooling's config.json switches no pooling_mode on")
    return tuple(mode for mode in MODES if mode in found)


def classification(config: Mapping[str, Any]) -> Pooling:
    """Labels as transformers counts them: two where the config names none."""
    named = config.get("id2label")
    if named is not None and not isinstance(named, Mapping):
        raise UnsupportedModel(f"id2label must be an object, not {type(named).__name__}")
    count = len(named) if named else config.get("num_labels", 2)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_LABELS:
        raise UnsupportedModel(f"num_labels must be a whole number from 1 to {MAX_LABELS}, not {count!r}")
    labels = tuple(str((named or {}).get(str(i), (named or {}).get(i, f"LABEL_{i}"))) for i in range(count))
    return Pooling(kind=CLASSIFICATION, width=count, labels=labels, activation=_activation(config, count), pairs=True)


def _activation(config: Mapping[str, Any], count: int) -> str:
    """What a cross-encoder's files name; else by the problem: independent labels and a single one have a sigmoid."""
    stated = config.get("sentence_transformers")
    named = stated.get("activation_fn") if isinstance(stated, Mapping) else None
    named = named or config.get("sbert_ce_default_activation_function")
    if named is not None:
        word = str(named).rpartition(".")[2]
        if word not in _ACTIVATIONS:
            raise UnsupportedModel(f"activation_fn {named!r} is not supported; known: {', '.join(_ACTIVATIONS)}")
        return _ACTIVATIONS[word]
    problem = config.get("problem_type")
    if problem == "regression":
        return "identity"
    return "sigmoid" if count == 1 or problem == "multi_label_classification" else "softmax"
