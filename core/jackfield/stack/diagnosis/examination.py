"""The child's side of `plugins doctor` and `plugins show`: imports one plugin in this process and tells what that did.

Runs in a process of its own, which ends with the examination. Judges nothing: findings are `doctor`'s business.
"""

from __future__ import annotations

import builtins
import inspect
import json
import sys
import time
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import msgspec
from pydantic import BaseModel, ValidationError

import jackfield.hookspecs as contract
from jackfield.config.device import DeviceDescription, describe_device
from jackfield.config.errors import ConfigurationError
from jackfield.config.problems import plain_words
from jackfield.hookspecs import Need
from jackfield.hookspecs.markers import PROJECT
from jackfield.stack.diagnosis.global_state import changes, foreign_members, snapshot, touches_cuda
from jackfield.stack.diagnosis.inspection import described_fields
from jackfield.stack.discovery.manifest import ManifestRow
from jackfield.stack.errors import PluginLoadError
from jackfield.stack.loading.deprecation import hook_uses, method_uses
from jackfield.stack.loading.deprecation import told as told_deprecation
from jackfield.stack.loading.hooks import the_hook
from jackfield.stack.loading.implementations import implementations, named_arguments
from jackfield.stack.loading.imports import import_plugin_module, told
from jackfield.stack.resolved import SelectedPlugin
from jackfield.stack.selection import probes

TORCH = "torch"


class TorchWatch:
    """Imports torch by itself the moment that somebody asks for it, so that what torch does is not held against a plugin."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.rss = 0
        self.allowances: list[tuple[str, str]] = []
        self._import = builtins.__import__

    def __enter__(self) -> TorchWatch:
        builtins.__import__ = self._watched
        return self

    def __exit__(self, *_: object) -> None:
        builtins.__import__ = self._import

    def _watched(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == TORCH and TORCH not in sys.modules:
            builtins.__import__ = self._import
            before = snapshot()
            began = time.perf_counter()
            try:
                self._import(TORCH)
            finally:
                self.seconds += time.perf_counter() - began
                after = snapshot()
                self.rss += after.rss - before.rss
                self.allowances = changes(before, after)
        return self._import(name, *args, **kwargs)


def answer(order: dict[str, Any]) -> dict[str, Any]:
    """Imports options, parameters and probe before the module: what may not need torch before what may.

    order: {plugin: a `SelectedPlugin`}.

    Answers {steps: step -> {error, seconds, torch, heavy}, torch_seconds, rss, torch_rss, cuda, changes, patches, hooks,
    problems, deprecations, models: role -> {error, fields, defaults}, probe: None or {need, problems}, no_device: why none of
    its devices is here, or ""}.
    """
    for name in contract.__all__:  # so that looking them up later changes nothing
        getattr(contract, name)
    describe_device("cpu")
    report: dict[str, Any] = {"steps": {}, "models": {}, "hooks": [], "problems": [], "deprecations": [], "probe": None}
    plugin = msgspec.convert(order["plugin"], SelectedPlugin)
    manifest = plugin.manifest
    references = {"options": manifest.options, "parameters": manifest.parameters, "probe": manifest.probe}
    loaded: dict[str, ModuleType] = {}
    before = snapshot()
    with TorchWatch() as watch:
        for step, reference in (*references.items(), ("module", plugin.module)):
            if reference is not None and (module := _imported(report, step, reference, plugin)) is not None:
                loaded[step] = module
        if plugin.kind == "model" and "module" in loaded:
            for shape in _shapes(report, loaded["module"], plugin):
                _imported(report, "shape", shape, plugin)
    after = snapshot()
    report |= {
        "no_device": _device_of(manifest.devices)[1],
        "torch_seconds": watch.seconds,
        "rss": after.rss - before.rss,
        "torch_rss": watch.rss,
        "cuda": touches_cuda(),
        "changes": [change for change in changes(before, after) if change not in watch.allowances],
        "patches": foreign_members(plugin.module if plugin.path else plugin.package),
    }
    if "module" in loaded:
        functions, problems = implementations(loaded["module"], plugin.kind)
        report["problems"] += problems
        report["deprecations"] = _deprecations(plugin.kind, functions, loaded["module"])
        report["hooks"] = _hooks(loaded["module"])
    for role in ("options", "parameters"):
        if role in loaded:
            report["models"][role] = _model(loaded[role], str(references[role]))
    if "probe" in loaded:
        report["probe"] = _probed(manifest)
    return report


def _imported(report: dict[str, Any], step: str, reference: str, plugin: SelectedPlugin) -> ModuleType | None:
    began = time.perf_counter()
    error = ""
    module = None
    try:
        module = import_plugin_module(reference.partition(":")[0], plugin)
    except PluginLoadError as raised:
        error = told(raised.__cause__ or raised)
    report["steps"][step] = {
        "error": error,
        "seconds": time.perf_counter() - began,
        "torch": TORCH in sys.modules,
        "heavy": sorted({"transformers", "tensorflow", "jax"} & set(sys.modules)),
    }
    return module


def _shapes(report: dict[str, Any], module: ModuleType, plugin: SelectedPlugin) -> list[str]:
    """Where the shapes of a plugin's models are computed: the main process imports that too."""
    hook = the_hook("model")
    functions, problems = implementations(module, "model")
    if problems or hook.context is None:
        return []
    context = hook.context(kind=plugin.kind, name=plugin.name, instance=plugin.instance)
    try:
        entries = functions[hook.name](**named_arguments(functions[hook.name], {"context": context}))
        offered = set(entries)
        shapes = sorted({entry.shape for entry in entries.values()})
    except Exception as error:
        report["problems"].append(f"{hook.name} raised {told(error)}")
        return []
    difference = sorted(offered ^ set(plugin.manifest.architectures))
    if difference:
        report["problems"].append(f"its manifest and {hook.name} disagree over {', '.join(difference)}")
    return shapes


def _hooks(module: ModuleType) -> list[dict[str, Any]]:
    """What is marked as an implementation: functions of the module, and methods of its own classes (an observer's)."""
    found = []
    for holder, where in ((module, ""), *((one, one.__name__) for one in _own_classes(module))):
        for attribute, function in vars(holder).items():
            options = getattr(function, PROJECT + "_impl", None) if inspect.isroutine(function) else None
            if isinstance(options, dict):
                arguments = list(inspect.signature(function).parameters)
                found.append(
                    {
                        "hook": options.get("specname") or attribute,
                        "arguments": arguments if holder is module else arguments[1:],
                        "on": where,
                    }
                )
    return found


def _deprecations(kind: str, functions: Mapping[str, Any], module: ModuleType) -> list[str]:
    """What the module's hooks, methods of its own classes among them, use of what their contract will lose."""
    uses = [*hook_uses(kind, functions)]
    for one in _own_classes(module):
        uses += [*hook_uses(kind, {name: value for name, value in vars(one).items() if inspect.isfunction(value)})]
        uses += [*method_uses(kind, one)]
    return [told_deprecation(row) for row, _ in uses]


def _own_classes(module: ModuleType) -> list[type]:
    return [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]


def _model(module: ModuleType, reference: str) -> dict[str, Any]:
    """Whether it is a model that can be described, and whether its own defaults would be taken."""
    name = reference.partition(":")[2]
    model = getattr(module, name, None)
    answer: dict[str, Any] = {"error": "", "fields": [], "defaults": ""}
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        what = "is not there" if model is None else "is no pydantic model"
        return answer | {"error": f"{reference} {what}"}
    try:
        answer["fields"] = described_fields(model)
    except Exception as error:
        return answer | {"error": f"{reference} has no JSON schema: {told(error)}"}
    if not any(field["required"] for field in answer["fields"]):
        try:
            # By way of Python's JSON, which has an infinity, as the options of a run come.
            given = json.dumps(model().model_dump(mode="json", by_alias=True, warnings=False))
            model.model_validate_json(given, strict=True)
        except ValidationError as error:
            answer["defaults"] = "; ".join(_finding(detail) for detail in error.errors(include_url=False))
        except Exception as error:
            answer["defaults"] = told(error)
    return answer


def _finding(detail: Any) -> str:
    return f"{'.'.join(map(str, detail['loc'])) or '*'} {plain_words(detail)}, not {detail['input']!r}"


def _probed(manifest: ManifestRow) -> dict[str, Any]:
    """The answer to a question that every probe understands; a probe that is wrong is told as one that fails.

    It is asked about the device for which its plugin is, where that is here, in a dtype that it takes: that is its `need`. Where
    none is, it is asked about a CPU, for what it says of packages, and its need is "", because no run has it.
    """
    device, why = _device_of(manifest.devices)
    dtype = "float32" if not manifest.dtypes or "float32" in manifest.dtypes else manifest.dtypes[0]
    problems = probes.ask_probe(str(manifest.probe), Need(device=device.type, dtype=dtype), device)
    return {"need": "" if why else f"{device.type} in {dtype}", "problems": problems}


def _device_of(devices: Sequence[str]) -> tuple[DeviceDescription, str]:
    """The first of a manifest's devices that is here, or else the CPU and why there is none."""
    why = ""
    for name in devices:
        try:
            return describe_device(name), ""
        except ConfigurationError as error:
            why = why or str(error).removeprefix(f"--device {name}: ").partition(";")[0]
    return describe_device("cpu"), why
