"""Facts of the model that resolution needs: its configuration and its shape, asked of the loader and the model plugin.

That imports plugins. With `isolate=True` it happens in a child process, so that `explain` imports none. Reads headers and
configuration only, never a weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from jackfield.config import embedded
from jackfield.config.chat_template import read_chat_template
from jackfield.config.device import DeviceDescription, describe_device
from jackfield.config.dtype import resolve_dtype
from jackfield.config.errors import ConfigurationError
from jackfield.config.model_config import ModelConfig
from jackfield.config.server_args import ServerArgs
from jackfield.config.sources import option_folders, option_sources
from jackfield.hookspecs import ModelShape, ModelSource, ModelSourceError, Pooling, Shard, UnsupportedModel
from jackfield.stack.child import ChildFailure, call_in_child
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow
from jackfield.stack.discovery.scan import discover
from jackfield.stack.errors import PLUGIN_ERRORS, PluginLoadError
from jackfield.stack.loading.implementations import named_arguments
from jackfield.stack.loading.imports import import_object, told
from jackfield.stack.loading.load import INLINE, LoadedStack, load_stack
from jackfield.stack.names import instance_key
from jackfield.stack.resolved import ModelFacts, ResolvedStack, SelectedPlugin
from jackfield.stack.selection.access import Access
from jackfield.stack.selection.checks import manifest_of
from jackfield.stack.selection.choice import Selector, as_selected
from jackfield.stack.selection.models import model_files, select_loader, select_model, select_worker
from jackfield.stack.selection.pooling import pooling_of


def gather_model_facts(
    args: ServerArgs,
    model_path: Path | None,
    catalogue: Catalogue,
    *,
    isolate: bool,
    device: DeviceDescription | None = None,
    name: str | None = None,
    provenance: Mapping[str, str] | None = None,
) -> ModelFacts:
    """Configuration and shape of the model that `args` ask for.

    model_path   where the model lies here; None: the embedded one, whose configuration ships with the core
    isolate      ask the plugins in a child process, which discovers on the same import path
    device       None: the one that `--device` means
    name         what the model is called; None: by its path
    provenance   field -> where its value came from: paths among the options of a stack file count from its folder

    The shape is None if the worker uses no model plugin. Raises ConfigurationError.
    """
    device = device or describe_device(args.device)
    if name is None:
        name = embedded.NAME if model_path is None else _name(args, model_path)
    if isolate:
        return _gather_in_child(args, model_path, device, name, provenance or {})
    file, files = model_files(model_path)
    access = Access(args.plugin_allow, args.plugin_deny)
    catalogue = access.settled(catalogue)
    selector = Selector(catalogue, access)
    loader = select_loader(selector, args, file, files).row
    if model_path is None:
        raw, source = embedded.embedded_config(), embedded.CONFIG_SOURCE
        templates: Mapping[str, str] = {"default": embedded.embedded_chat_template()}
    else:
        raw, templates = _read_source(_selected(args, loader, provenance), args, model_path)
        source = file
    config = ModelConfig.from_hf(
        raw, source=source, overrides=args.json_model_override_args, context_length=args.context_length
    )
    dtype, _ = resolve_dtype(args.dtype, config.dtype, device)
    worker = select_worker(selector, args, catalogue, device.type, dtype).row
    shape = None
    if "model" in manifest_of(worker).needs:
        model = select_model(selector, args, config.architecture, catalogue, device.type, dtype).row
        shape = _describe(_selected(args, model, provenance), config)
    template = _effective_template(args, templates)
    pooling = pooling_of(config, shape, is_embedding=args.is_embedding)
    return ModelFacts(
        name=name, file=file, files=files, config=config, shape=shape, chat_template=template, pooling=pooling
    )


def _effective_template(args: ServerArgs, templates: Mapping[str, str]) -> str:
    if args.skip_tokenizer_init:
        return ""
    if args.chat_template is not None:
        return read_chat_template(args.chat_template)
    return "\n".join(templates[name] for name in ("default", "tool_use") if name in templates)


def _name(args: ServerArgs, path: Path) -> str:
    # A local path is told by its last part, so that no folder of this machine gets into answers; a hub id as it is.
    if args.model_path is not None and not Path(args.model_path).exists():
        return args.model_path
    return path.resolve().name


def _read_source(loader: SelectedPlugin, args: ServerArgs, path: Path) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Configuration and chat templates."""
    source: ModelSource = _load(loader).make("loader", path=path, overrides=args.json_model_override_args or {})
    try:
        config: dict[str, Any] = source.config()
    except ModelSourceError as error:
        raise ConfigurationError(str(error)) from error
    except PLUGIN_ERRORS as error:
        raise PluginLoadError(
            f"{loader.described} failed to read the configuration of {path}: {told(error)}"
        ) from error
    if args.skip_tokenizer_init or args.chat_template is not None:
        return config, {}
    try:
        return config, source.chat_templates()
    except ModelSourceError:
        # Whoever needs the tokenizer tells what is wrong with it; this run may not.
        return config, {}
    except PLUGIN_ERRORS as error:
        raise PluginLoadError(
            f"{loader.described} failed to read the chat template of {path}: {told(error)}"
        ) from error


def _describe(model: SelectedPlugin, config: ModelConfig) -> ModelShape:
    entry = _load(model).models()[config.architecture]
    describe = import_object(entry.shape, model)
    try:
        shape = describe(**named_arguments(describe, {"config": dict(config.hf), "shard": Shard()}))
    except UnsupportedModel as error:
        raise ConfigurationError(f"{model.described} cannot run this model ({config.source}): {error}") from error
    except PLUGIN_ERRORS as error:
        raise PluginLoadError(f"{model.described} failed to describe {config.architecture}: {told(error)}") from error
    if not isinstance(shape, ModelShape):
        raise PluginLoadError(f"{model.described}: {entry.shape} returned {type(shape).__name__}, not a ModelShape")
    return shape


def _selected(args: ServerArgs, row: PluginRow, provenance: Mapping[str, str] | None) -> SelectedPlugin:
    key = instance_key(row.kind, row.name)
    return as_selected(
        row,
        "its facts are needed",
        options=args.options_for(row.kind, row.name),
        option_folders=option_folders(provenance or {}, key),
        option_sources=option_sources(provenance or {}, key),
    )


def _load(plugin: SelectedPlugin) -> LoadedStack:
    return load_stack(ResolvedStack(plugins=(plugin,)), INLINE)


def _gather_in_child(
    args: ServerArgs, path: Path | None, device: DeviceDescription, name: str, provenance: Mapping[str, str]
) -> ModelFacts:
    order = {
        "args": args.model_dump(mode="json"),
        "path": None if path is None else str(path.absolute()),
        "device": msgspec.to_builtins(device),
        "name": name,
        "provenance": dict(provenance),
    }
    try:
        told = call_in_child(__name__, order)
    except ChildFailure as error:
        raise ConfigurationError(f"the model's facts could not be gathered: {error}") from error
    config = ModelConfig.from_hf(told["config"], source=told["source"], context_length=args.context_length)
    return ModelFacts(
        name=name,
        file=told["file"],
        files=tuple(told["files"]),
        config=config,
        shape=msgspec.convert(told["shape"], ModelShape | None),
        chat_template=told["chat_template"],
        pooling=msgspec.convert(told["pooling"], Pooling | None),
    )


def answer(order: dict[str, Any]) -> dict[str, Any]:
    """The child's part, see `child.py`."""
    path = None if order["path"] is None else Path(order["path"])
    args = ServerArgs.model_validate(order["args"])
    facts = gather_model_facts(
        args,
        path,
        discover(files=args.plugin),
        isolate=False,
        device=msgspec.convert(order["device"], DeviceDescription),
        name=order["name"],
        provenance=order["provenance"],
    )
    return {
        "file": facts.file,
        "files": facts.files,
        "config": dict(facts.config.hf),
        "source": facts.config.source,
        "shape": msgspec.to_builtins(facts.shape),
        "chat_template": facts.chat_template,
        "pooling": msgspec.to_builtins(facts.pooling),
    }
