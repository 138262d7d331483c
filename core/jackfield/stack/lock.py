"""The lock of a run's stack: what it was made of, as a file for people and version control, and what differs from it now.

Holds names, versions, options as they were given (a secret among them too) and content digests; no place of this machine, so
that one file serves every machine. It locks the code and the choices, not the weights.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jackfield import __version__
from jackfield.config.errors import ConfigurationError
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.digest import CORE_PACKAGE, package_digest, plugin_digest, stack_hash
from jackfield.stack.resolved import ModelFacts, Resolution, SelectedPlugin

SCHEMA_VERSION = 1

FLAG = "--locked"

SHORT = 12
"""Digits of a digest that a message shows."""

_HEAD = """\
# What a run of Jackfield was made of. Written by `jackfield lock`; a start with --locked and this file refuses anything else.
"""

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def lock_document(resolution: Resolution, facts: ModelFacts) -> dict[str, Any]:
    """The lock of a resolved run. Raises ConfigurationError if a selected package is not importable here."""
    args, stack = resolution.args, resolution.stack
    document = {
        "schema_version": SCHEMA_VERSION,
        "stack_hash": stack_hash(stack),
        "core": {"version": __version__, "content": package_digest(CORE_PACKAGE)},
        "contracts": {kind.name: kind.contract_version for kind in sorted(KINDS.values(), key=lambda kind: kind.name)},
        "resolution": {
            "architecture": facts.config.architecture,
            "device": args.device,
            "dtype": args.dtype,
            "enable_deterministic_inference": args.enable_deterministic_inference,
            "kv_layout": "" if stack.layout is None else stack.layout.name,
            "page_size": args.page_size,
            "weights": "" if stack.weights is None else stack.weights.name,
            "worker_thread": stack.worker_thread,
        },
        "plugin": [_plugin(plugin) for plugin in stack.plugins],
    }
    # Options are what TOML and JSON share; whatever else they hold is compared as it would be read back.
    return tomllib.loads(lock_text(document))


def _plugin(plugin: SelectedPlugin) -> dict[str, Any]:
    return {
        "kind": plugin.kind,
        "name": plugin.name,
        "instance": plugin.instance,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "content": plugin_digest(plugin),
        "phases": list(plugin.phases),
        "options": dict(plugin.options),
    }


def lock_text(document: Mapping[str, Any]) -> str:
    """The file. Plugins stand in the order in which they run; keys of options are sorted."""
    lines = [_HEAD]
    lines += [f"{key} = {_toml(value)}" for key, value in document.items() if not isinstance(value, dict | list)]
    for name, table in document.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
    for plugin in document["plugin"]:
        plain = {key: value for key, value in plugin.items() if key != "options" and value != []}
        lines += ["", "[[plugin]]", *(f"{key} = {_toml(value)}" for key, value in plain.items())]
        if plugin.get("options"):
            lines.append(f"options = {_toml(plugin['options'])}")
    return "\n".join(lines) + "\n"


def read_lock(path: Path, source: str = FLAG) -> dict[str, Any]:
    """source: who named it. Raises ConfigurationError for all but a whole lock of this version's form."""
    again = "write one with: jackfield lock --output FILE"
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"{source}: there is no file {str(path)!r}; {again}") from None
    except OSError as error:
        raise ConfigurationError(f"{source}: {path} cannot be read: {error.strerror}; {again}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{source}: {path} is no lock, it is not TOML: {error}; {again}") from error
    version = document.get("schema_version")
    if version is None:
        raise ConfigurationError(f"{source}: {path} is no lock, it has no schema_version; {again}")
    if version != SCHEMA_VERSION:
        raise ConfigurationError(
            f"{source}: {path} has the lock's schema_version {version!r}, this core reads {SCHEMA_VERSION}; {again}"
        )
    if damage := next(_damages(document), None):
        raise ConfigurationError(f"{source}: {path} is not a whole lock: {damage}; {again}")
    return document


def _damages(document: Mapping[str, Any]) -> Iterator[str]:
    """What of the lock's form is not there, or is something else."""
    for name in ("core", "contracts", "resolution"):
        if not isinstance(document.get(name), dict):
            yield f"the table [{name}] is missing or damaged"
    if not isinstance(document.get("stack_hash"), str):
        yield "stack_hash is missing or no text"
    plugins = document.get("plugin", [])
    if not isinstance(plugins, list):
        yield "[[plugin]] is no list of tables"
        return
    for number, row in enumerate(plugins, 1):
        if not isinstance(row, dict):
            yield f"[[plugin]] number {number} is no table"
            continue
        yield from (
            f"{key} of [[plugin]] number {number} is missing or no text"
            for key in ("kind", "name", "instance", "distribution", "version", "content")
            if not isinstance(row.get(key), str)
        )
        if not isinstance(row.get("options", {}), dict):
            yield f"options of [[plugin]] number {number} is no table"
        if not isinstance(row.get("phases", []), list):
            yield f"phases of [[plugin]] number {number} is no list"


def check_locked(path: Path, resolution: Resolution, facts: ModelFacts, source: str = FLAG) -> None:
    """Refuse a run that is not the locked one, with all that differs. Raises ConfigurationError."""
    found = differences(read_lock(path, source), lock_document(resolution, facts))
    if found:
        lines = "".join(f"\n  - {difference}" for difference in found)
        raise ConfigurationError(
            f"{source} {path}: this run is not the one that was locked:{lines}\n"
            f"If that is meant, renew the lock: jackfield lock --output {path} and the same stack arguments"
        )


def differences(locked: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs, one text each; none if both are of the same stack."""
    found = list(_core(locked, now))
    for name, value in now["resolution"].items():
        was = locked["resolution"].get(name)
        if value != was:
            found.append(f"{name} is {_told(value)}, {_told(was)} was locked")
    found += [
        f"{name} of the lock is unknown to this core" for name in locked["resolution"] if name not in now["resolution"]
    ]
    found += _plugins(locked.get("plugin", []), now["plugin"])
    if not found and locked.get("stack_hash") != now["stack_hash"]:
        found.append(
            f"the stack hash is {now['stack_hash'][:SHORT]}, {str(locked.get('stack_hash'))[:SHORT]} was locked, and "
            "nothing else differs: the lock was edited"
        )
    return found


def _core(locked: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    was, core = locked["core"], now["core"]
    if was.get("version") != core["version"]:
        yield f"the core is jackfield {core['version']}, {was.get('version')} was locked"
    elif was.get("content") != core["content"]:
        yield f"the content of the core is {_of(core)}, {_of(was)} was locked: files of jackfield were changed"
    for kind, version in now["contracts"].items():
        contract = locked["contracts"].get(kind)
        if contract != version:
            yield f"the {kind} contract of the core is {version}, {contract or 'none'} was locked"
    for kind, version in locked["contracts"].items():
        if kind not in now["contracts"]:
            yield f"this core has no {kind} contract, {version} was locked"


def _plugins(locked: list[dict[str, Any]], now: list[dict[str, Any]]) -> Iterator[str]:
    was = {_key(plugin): plugin for plugin in locked}
    here = {_key(plugin): plugin for plugin in now}
    new = [plugin for key, plugin in here.items() if key not in was]
    gone = [plugin for key, plugin in was.items() if key not in here]
    for key, plugin in here.items():
        if key in was:
            yield from _one(was[key], plugin)
    for plugin in new:
        kind = plugin["kind"]
        before = [other for other in gone if other["kind"] == kind]
        if KINDS[kind].exclusive and len(before) == 1:
            yield f"the {kind} is {plugin['name']!r}, {before[0]['name']!r} was locked"
            gone.remove(before[0])
        else:
            yield f"{_named(plugin)} is part of this run, and is not in the lock"
    for plugin in gone:
        yield f"{_named(plugin)} was locked, and is not part of this run"
    if set(was) == set(here) and list(was) != list(here):
        yield f"the order is {', '.join(_joined(key) for key in here)}; {', '.join(_joined(key) for key in was)} was locked"


def _one(was: Mapping[str, Any], plugin: Mapping[str, Any]) -> Iterator[str]:
    name = _named(plugin)
    for field in ("distribution", "version"):
        if plugin[field] != was.get(field):
            yield f"the {field} of {name} is {plugin[field]}, {was.get(field)} was locked"
    if plugin["content"] != was.get("content"):
        why = ""
        if plugin["version"] == was.get("version"):
            one_file = not plugin["version"]
            why = ": the file was changed" if one_file else ": its files were changed without a new version"
        yield f"the content of {name} is {_of(plugin)}, {_of(was)} was locked{why}"
    if plugin.get("phases", []) != was.get("phases", []):
        here, before = (" and ".join(map(str, side.get("phases", []))) or "no phase" for side in (plugin, was))
        yield f"{name} serves {here}, for {before} it was locked"
    options, locked = plugin.get("options", {}), was.get("options", {})
    for option in sorted({*options, *locked}):
        # As the file has them: there a null is a text, and a nan equals a nan.
        values = [_toml(side[option]) if option in side else "not given" for side in (options, locked)]
        if values[0] != values[1]:
            yield "the option {} of {} is {}, {} was locked".format(option, name, *values)


def _key(plugin: Mapping[str, Any]) -> tuple[str, str, str]:
    return plugin["kind"], plugin["instance"], plugin["name"]


def _joined(key: tuple[str, str, str]) -> str:
    return f"{key[0]}.{key[1]}"


def _named(plugin: Mapping[str, Any]) -> str:
    instance = "" if plugin["instance"] == plugin["name"] else f" as {plugin['instance']!r}"
    return f"{plugin['kind']} plugin {plugin['name']!r}{instance}"


def _told(value: Any) -> str:
    return "none" if value in (None, "") else repr(value)


def _of(part: Mapping[str, Any]) -> str:
    return str(part.get("content"))[:SHORT]


def _toml(value: Any) -> str:
    """A value on one line. TOML has no null: an option that is None is written as the text "null"."""
    if isinstance(value, Mapping):
        pairs = sorted(value.items(), key=lambda pair: str(pair[0]))
        return "{ " + ", ".join(f"{_name(str(key))} = {_toml(item)}" for key, item in pairs) + " }" if pairs else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, bool | int):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    return _text("null" if value is None else str(value))


def _name(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(value: str) -> str:
    # JSON's escapes are TOML's, but for DEL, which JSON leaves as it is and TOML forbids.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
