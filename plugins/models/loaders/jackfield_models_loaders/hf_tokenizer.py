"""The tokenizer files of a directory in Hugging Face's layout. Knows no weights.

The result tokenizes as transformers 5 does with the same files: tokens that only tokenizer_config.json lists are added;
what stands at the ends of a text is tokenizer.json's affair alone, so `add_bos_token` and `add_eos_token` beside it count
for nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jackfield.hookspecs import ModelSourceError, TokenizerFiles
from jackfield_models_loaders.json_file import parse_object, read_bytes, read_object, read_text

ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def read_tokenizer(directory: Path) -> TokenizerFiles:
    """Raises ModelSourceError if there is no tokenizer.json or one of the files is malformed."""
    path = directory / "tokenizer.json"
    if not path.exists():
        others = [name for name in ("tokenizer.model", "vocab.json", "vocab.txt") if (directory / name).exists()]
        remedy = (
            f"it has {', '.join(others)}: convert it with transformers "
            "(AutoTokenizer.from_pretrained(...).save_pretrained(...))"
            if others
            else "fetch the whole checkpoint, or start with --skip-tokenizer-init"
        )
        raise ModelSourceError(f"{path}: is missing; {remedy}")
    content = read_bytes(path)
    settings = _optional(directory / "tokenizer_config.json")
    special = _special_tokens(directory, settings)
    tokenizer = parse_object(path, content)
    changed = _add_tokens(directory, tokenizer, settings)
    template, named = _chat_templates(directory, settings)
    return TokenizerFiles(
        tokenizer_json=json.dumps(tokenizer, ensure_ascii=False).encode() if changed else content,
        special_tokens=special,
        chat_template=template,
        chat_templates=named,
    )


def read_chat_templates(directory: Path) -> dict[str, str]:
    """Name -> source, the nameless one as "default". Raises ModelSourceError."""
    nameless, named = _chat_templates(directory, _optional(directory / "tokenizer_config.json"))
    return named if nameless is None else {**named, "default": nameless}


def _optional(path: Path) -> dict[str, Any]:
    return read_object(path) if path.exists() else {}


def _token_text(value: Any) -> str | None:
    """A token stands as a string or as an object with its flags."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _special_tokens(directory: Path, settings: dict[str, Any]) -> dict[str, str]:
    """Settings rule; special_tokens_map.json fills what they leave out."""
    fallback = _optional(directory / "special_tokens_map.json")
    found = {role: _token_text(settings[role] if role in settings else fallback.get(role)) for role in ROLES}
    return {role: text for role, text in found.items() if text is not None}


def _add_tokens(directory: Path, tokenizer: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Add the tokens that only tokenizer_config.json or added_tokens.json lists; True if there were any."""
    listed: dict[int, dict[str, Any]] = {}
    where = directory / "added_tokens.json"
    for text, token in _optional(where).items():
        if type(token) is not int:
            raise ModelSourceError(f"{where}: gives {text!r} the id {token!r}, which is not a number")
        listed[token] = {"content": text}
    where = directory / "tokenizer_config.json"
    decoder = settings.get("added_tokens_decoder") or {}
    if not isinstance(decoder, dict):
        raise ModelSourceError(f"{where}: added_tokens_decoder is not an object; fetch the file again")
    for number, entry in decoder.items():
        if not number.isdecimal() or _token_text(entry) is None:
            raise ModelSourceError(f"{where}: added_tokens_decoder has the malformed entry {number!r}")
        listed[int(number)] = entry if isinstance(entry, dict) else {"content": entry}
    if not listed:
        return False
    added = tokenizer.setdefault("added_tokens", [])
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise ModelSourceError(f"{directory / 'tokenizer.json'}: added_tokens is not a list of objects")
    known = {token.get("content") for token in added}
    vocabulary = _vocabulary(tokenizer)
    following = max([len(vocabulary), *(token.get("id", -1) + 1 for token in added)])
    changed = False
    for number, entry in sorted(listed.items()):
        text = entry["content"]
        if text in known:
            continue
        expected = vocabulary.get(text, following)
        if expected != number:
            raise ModelSourceError(
                f"{where}: gives the added token {text!r} the id {number}, but by tokenizer.json it would get {expected}; "
                "the files are of different checkpoints: fetch them again"
            )
        following = max(following, number + 1)
        flags = {flag: bool(entry.get(flag, False)) for flag in ("single_word", "lstrip", "rstrip")}
        normalized, special = bool(entry.get("normalized", True)), bool(entry.get("special", False))
        added.append({"id": number, "content": text, **flags, "normalized": normalized, "special": special})
        changed = True
    return changed


def _vocabulary(tokenizer: dict[str, Any]) -> dict[str, int]:
    model = tokenizer.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, dict):
        return vocab
    if isinstance(vocab, list):  # unigram: [text, score] by id
        return {entry[0]: number for number, entry in enumerate(vocab) if isinstance(entry, list) and entry}
    return {}


def _chat_templates(directory: Path, settings: dict[str, Any]) -> tuple[str | None, dict[str, str]]:
    """chat_template.jinja before chat_template.json before tokenizer_config.json; further ones by name."""
    template, named = _listed_templates(directory / "tokenizer_config.json", settings.get("chat_template"))
    separate = directory / "chat_template.json"
    if separate.exists():
        own, own_named = _listed_templates(separate, read_object(separate).get("chat_template"))
        template, named = own or template, {**named, **own_named}
    if (directory / "chat_template.jinja").exists():
        template = read_text(directory / "chat_template.jinja")
    folder = directory / "additional_chat_templates"
    if folder.is_dir():
        named.update({path.stem: read_text(path) for path in sorted(folder.glob("*.jinja"))})
    return template, named


def _listed_templates(path: Path, value: Any) -> tuple[str | None, dict[str, str]]:
    if value is None or isinstance(value, str):
        return value, {}
    if isinstance(value, dict):
        value = [{"name": name, "template": source} for name, source in value.items()]
    if not isinstance(value, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("template"), str)
        for entry in value
    ):
        raise ModelSourceError(f"{path}: chat_template is neither a template nor a list of named ones")
    named = {entry["name"]: entry["template"] for entry in value}
    return named.pop("default", None), named
