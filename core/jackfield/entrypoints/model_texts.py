"""The model's files as one process of a replica sees them: its source, its tokenizer's files, its tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from jackfield.config.errors import ConfigurationError
from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.starting import give_memory_back
from jackfield.hookspecs import ModelSource, ModelSourceError, TokenizerFiles
from jackfield.managers.text.tokenizer import Tokenizer
from jackfield.stack.loading.load import LoadedStack


class Texts:
    """The model's files as one process sees them; each is read when it is first asked for, and only once."""

    def __init__(self, loaded: LoadedStack, args: ServerArgs, model_path: Path) -> None:
        self._loaded = loaded
        self._args = args
        self._model_path = model_path

    @cached_property
    def source(self) -> ModelSource:
        """Raises ConfigurationError."""
        return open_model(self._loaded, self._args, self._model_path)

    @cached_property
    def files(self) -> TokenizerFiles | None:
        """None with --skip-tokenizer-init. Raises ConfigurationError if the model has none that can be read."""
        if self._args.skip_tokenizer_init:
            return None
        try:
            return self.source.tokenizer()
        except ModelSourceError as error:
            raise ConfigurationError(str(error)) from error

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """As `files`. Raises ConfigurationError if the model's files make none."""
        try:
            made = None if self.files is None else Tokenizer.from_files(self.files)
        except ModelSourceError as error:
            raise ConfigurationError(str(error)) from error
        give_memory_back()
        return made

    @property
    def encode(self) -> Callable[[str], list[int]] | None:
        """For a worker: made now, paid for when it is called."""
        return None if self._args.skip_tokenizer_init else self._encode

    def _encode(self, text: str) -> list[int]:
        assert self.tokenizer is not None
        return self.tokenizer.encode(text, add_special_tokens=False)


def open_model(loaded: LoadedStack, args: ServerArgs, model_path: Path) -> ModelSource:
    """Raises ConfigurationError."""
    try:
        source: ModelSource = loaded.make("loader", path=model_path, overrides=args.json_model_override_args or {})
    except ModelSourceError as error:
        raise ConfigurationError(str(error)) from error
    return source
