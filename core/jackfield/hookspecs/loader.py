"""Kind `loader`: a checkpoint format. A source gives all that a checkpoint holds, so that the core knows no file format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs.common import PluginContext
from jackfield.hookspecs.markers import hookspec


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Which part of the model a rank holds."""

    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1


@dataclass(frozen=True, kw_only=True)
class Weight:
    """One tensor of a checkpoint under its Hugging Face name, as it lies in the file (memory-mapped where possible).

    encoding   "plain", or a packed form: "q8_0", "q4_0", "q4_1", "q4_k", "q6_k", ...
    dtype      of a plain weight: "float32" | "float16" | "bfloat16"; of a packed one the dtype it decodes to (ggml's
               blocks: "float32")
    shape      logical (dense) shape, in Hugging Face's order [out, in]
    parts      "data" -> uint8 array: for plain weights the little-endian elements in row-major order; for packed ones
               [rows, bytes a row], each row being whole blocks. Usually a view of a file that is mapped copy-on-write:
               whoever takes it must not write into it
    """

    name: str
    encoding: str
    dtype: str
    shape: tuple[int, ...]
    parts: Mapping[str, NDArray[np.uint8]]


@dataclass(frozen=True, kw_only=True)
class TokenizerFiles:
    """What the text side needs, free of torch.

    tokenizer_json    content of a `tokenizer.json` in the format of the `tokenizers` library
    special_tokens    role ("bos_token", "eos_token", "pad_token", "unk_token") -> token text
    chat_template     Jinja source; None if the checkpoint has none
    chat_templates    further named templates
    add_bos, add_eos  True/False where the checkpoint says so and `tokenizer_json` does not do it by itself; else None
    """

    tokenizer_json: bytes
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    chat_template: str | None = None
    chat_templates: Mapping[str, str] = field(default_factory=dict)
    add_bos: bool | None = None
    add_eos: bool | None = None


class ModelSourceError(Exception):
    """A missing, truncated or malformed model file. The text names the file and says what is wrong and what to do."""


class ModelSource(ABC):
    """One opened checkpoint. Opening reads headers only. Nothing here imports torch."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The model's configuration in Hugging Face's shape, with `architectures` and the context's overrides laid over it;
        generation settings that the checkpoint carries stand under the key `generation_config`, and what it has of
        sentence-transformers' files under `sentence_transformers_files`: `modules` (the modules' types in their order), `pooling`
        (the pooling's config.json), `max_seq_length`; packed encodings of its matrices under `weight_encodings`, sorted, where it
        has any. A new dict each time.
        Raises ModelSourceError."""

    @abstractmethod
    def tokenizer(self) -> TokenizerFiles:
        """Raises ModelSourceError if the checkpoint has no tokenizer that can be read."""

    def chat_templates(self) -> Mapping[str, str]:
        """Jinja source of each chat template by name, the nameless one as "default"; empty: it has none. Asked before any process
        is started, so a source that finds them without reading the tokenizer should. Raises ModelSourceError."""
        files = self.tokenizer()
        nameless = {} if files.chat_template is None else {"default": files.chat_template}
        return {**files.chat_templates, **nameless}

    def files(self) -> tuple[Path, ...]:
        """The files whose bytes decide what `weights` gives, in a fixed order; empty where it cannot say, and then nothing that
        is made of the weights is kept for a later start. Raises ModelSourceError."""
        return ()

    @abstractmethod
    def weights(self, shard: Shard) -> Iterator[Weight]:
        """Every tensor once, unsharded (the layers cut out their part); all headers and sizes are checked by the call
        itself, before the first is given. Raises ModelSourceError."""


@dataclass(frozen=True, kw_only=True)
class LoaderContext(PluginContext):
    """path: the local file or directory of the model; overrides: entries laid over the checkpoint's config, objects
    merged entry by entry (`--json-model-override-args`)."""

    path: Path
    overrides: Mapping[str, Any] = field(default_factory=dict)


class LoaderSpecs:
    @hookspec
    def jackfield_model_source(self, context: LoaderContext) -> ModelSource:  # type: ignore[empty-body]
        """Open a checkpoint.

        Process: main, scheduler and detokenizer, each for what it needs. When: at start. Cost: reading headers.
        Which paths a loader takes stands in its manifest (`files`). Example:

            @hookimpl
            def jackfield_model_source(context: LoaderContext) -> ModelSource:
                from my_package.source import MySource

                return MySource(context.path)
        """
