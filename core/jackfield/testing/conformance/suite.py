"""The base of all suites: finds and makes the plugin as a run does, and says what a check is.

A check is a test method; the first line of its docstring says what it proves. Beside passing and failing it may end as "not
claimed" (the manifest does not promise it, so nobody would ask for it), "not here" (this machine lacks the device) or
"cannot run" (a tool that the check needs is missing). Knows no kind.

What looks for plugins and loads them is imported when it is used: a suite whose subclass finds its plugin in another way
(`manifest`, `make`, `stack`) runs where pydantic and msgspec are absent, as on the machine of `benchmarks/gpu`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import pytest

from jackfield import __version__
from jackfield.config.errors import ConfigurationError
from jackfield.hookspecs.kinds import KINDS

if TYPE_CHECKING:
    from jackfield.stack.discovery.catalogue import Catalogue
    from jackfield.stack.discovery.manifest import ManifestRow
    from jackfield.stack.loading.load import LoadedPlugin, LoadedStack
    from jackfield.stack.resolved import SelectedPlugin

TMP = "{tmp}"
NOT_CLAIMED, NOT_HERE, CANNOT_RUN = "not claimed", "not here", "cannot run"


class Conformance:
    """Subclass the suite of your kind in a pytest file, and set:

    plugin    its name, as in the manifest
    options   its options, as they would stand in a stack file; "{tmp}" in a text is a new folder for each check
    file      a one-file plugin, as `--plugin` takes it; None: it is installed
    device    the device to run on, for kinds that compute

    kind      set by the suite
    torch     whether the kind may import torch; set by the suite
    """

    kind: ClassVar[str] = ""
    torch: ClassVar[bool] = False
    plugin: ClassVar[str] = ""
    options: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    file: ClassVar[str | Path | None] = None
    device: ClassVar[str] = "cpu"

    jackfield_conformance: ClassVar[bool] = True
    _stack: ClassVar[LoadedStack | None] = None
    _identity: ClassVar[dict[str, Any] | None] = None
    _tmp_folder: ClassVar[str] = ""
    _torch_before: ClassVar[bool] = False

    @classmethod
    def selected(cls) -> SelectedPlugin:
        """The plugin as resolution would hand it on. Raises ConfigurationError if it is unknown, broken or in conflict."""
        from jackfield.stack.selection.single import select_one

        if not cls.plugin:
            raise ConfigurationError(f"{cls.__name__}: set `plugin` to the name of your {cls.kind} plugin")
        return select_one(cls.catalogue(), cls.kind, cls.plugin, _filled(dict(cls.options), cls._tmp_folder))

    @classmethod
    def catalogue(cls) -> Catalogue:
        """What is installed, and what `file` offers."""
        from jackfield.stack.discovery.scan import discover

        return discover(files=() if cls.file is None else (Path(cls.file),))

    @classmethod
    def stack(cls) -> LoadedStack:
        """The stack of this one plugin, loaded once a class. Raises ConfigurationError, PluginLoadError."""
        from jackfield.stack.loading.load import INLINE, load_stack
        from jackfield.stack.resolved import ResolvedStack

        if "_stack" not in vars(cls) or cls._stack is None:
            cls._torch_before = cls._torch_before or "torch" in sys.modules
            cls._stack = load_stack(ResolvedStack(plugins=(cls.selected(),)), INLINE)
        return cls._stack

    @classmethod
    def loaded(cls) -> LoadedPlugin:
        """The plugin, imported and checked."""
        return cls.stack().plugin(cls.kind)

    @classmethod
    def manifest(cls) -> ManifestRow:
        """What it claims."""
        return cls.loaded().selected.manifest

    @classmethod
    def make(cls, **fields: Any) -> Any:
        """A new object of the plugin by its provider hook. fields: those of the kind's context beyond `PluginContext`."""
        return cls.stack().make(cls.kind, **fields)

    @classmethod
    def identity(cls) -> dict[str, Any]:
        """What a report says of the plugin; "problem" instead of the facts if there is no such plugin."""
        if "_identity" not in vars(cls) or cls._identity is None:
            cls._identity = cls._identify()
        return cls._identity

    @classmethod
    def _identify(cls) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "plugin": f"{cls.kind}.{cls.plugin}",
            "kind": cls.kind,
            "name": cls.plugin,
            "options": dict(cls.options),
            "device": cls.device,
            "core": __version__,
            "core_contract": KINDS[cls.kind].contract_version,
        }
        try:
            from jackfield.stack.digest import plugin_digest

            selected = cls.selected()
            return facts | {
                "distribution": selected.distribution,
                "version": selected.version,
                "digest": plugin_digest(selected),
                "contract": dict(selected.manifest.contract),
            }
        except ConfigurationError as error:
            return facts | {"problem": str(error)}

    @pytest.fixture(autouse=True)
    def _plugin_stands(self, request: pytest.FixtureRequest) -> None:
        cls = type(self)
        if TMP in repr(cls.options):
            cls._tmp_folder, cls._stack = str(request.getfixturevalue("tmp_path")), None
        cls.stack()

    @pytest.fixture(autouse=True)
    def _records(self, record_property: Callable[[str, Any], None]) -> None:
        self._record = record_property

    def measured(self, what: str, value: float) -> None:
        """A number for the report, which no assertion asks for: "bytecodes for each waiting request"."""
        self._record("measured", {"what": what, "value": value})

    def needs_feature(self, *features: str) -> None:
        """End the check as "not claimed" unless the manifest lists all of these."""
        missing = [feature for feature in features if feature not in self.manifest().features]
        if missing:
            self.not_claimed(f"features has no {', '.join(map(repr, missing))}")

    @staticmethod
    def not_claimed(why: str) -> NoReturn:
        pytest.skip(f"{NOT_CLAIMED}: {why}")

    @staticmethod
    def not_here(why: str) -> NoReturn:
        pytest.skip(f"{NOT_HERE}: {why}")

    @staticmethod
    def cannot_run(why: str) -> NoReturn:
        pytest.skip(f"{CANNOT_RUN}: {why}")

    def test_loads(self) -> None:
        """Its manifest is healthy, its options validate and its module holds the kind's hook and no other's."""
        assert self.loaded().hooks, f"{self.loaded().module.__name__} implements no hook of kind {self.kind}"

    def test_imports_no_torch(self) -> None:
        """Neither its module nor its options bring in torch, which the kind does not need."""
        if self.torch:
            self.not_claimed(f"kind {self.kind!r} may import torch when it is made")
        if self._torch_before:
            self.not_here("torch had been imported before this suite began; run it alone")
        assert "torch" not in sys.modules, f"loading {self.plugin} imported torch"


def _filled(value: Any, folder: str) -> Any:
    """The options with the check's folder in the place of TMP."""
    if isinstance(value, str):
        return value.replace(TMP, folder)
    if isinstance(value, Mapping):
        return {key: _filled(item, folder) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(item, folder) for item in value]
    return value
