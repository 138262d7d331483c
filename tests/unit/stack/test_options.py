from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.stack.discovery.manifest import ManifestRow
from jackfield.stack.loading.options import validated_options
from jackfield.stack.resolved import SelectedPlugin
from tests.unit.stack.distributions import Site

MODEL = """
from enum import Enum
from pathlib import Path
from pydantic import BaseModel, Field, NewPath


class Mode(Enum):
    FAST = "fast"
    EXACT = "exact"


class Inner(BaseModel):
    depth: int = 1
    cache: NewPath = Path("c")


class Options(BaseModel):
    num_splits: int = Field(4, ge=1)
    ratio: float = 0.5
    mode: Mode = Mode.FAST
    label: str = ""
    sizes: tuple[int, ...] = ()
    where: Path | None = None
    files: list[Path] = Field(default_factory=list)
    inner: Inner = Inner()


class Strict(BaseModel):
    needed: int


class Free(BaseModel, extra="allow"):
    pass


NOT_A_MODEL = 3
"""


def selected(site: Site, options: dict[str, Any], model: str | None = "Options") -> SelectedPlugin:
    package = site.add("acme", sources={"options": MODEL}, entry_points="", manifest="")
    reference = None if model is None else f"{package}.options:{model}"
    return SelectedPlugin(
        kind="attention",
        name="torch",
        instance="torch",
        distribution="acme",
        version="1.0",
        package=package,
        module=f"{package}.x",
        manifest=ManifestRow(kind="attention", name="torch", options=reference),
        reason="",
        options=options,
    )


def refused(site: Site, options: dict[str, Any], model: str | None = "Options") -> str:
    with pytest.raises(ConfigurationError) as caught:
        validated_options(selected(site, options, model))
    return str(caught.value)


def test_defaults_without_options(live_site: Site) -> None:
    options: Any = validated_options(selected(live_site, {}))
    assert options.num_splits == 4


def test_toml_values_become_the_models_types(live_site: Site) -> None:
    given = {"num_splits": 8, "ratio": 1, "mode": "exact", "sizes": [1, 2], "where": "a/b", "inner": {"depth": 3}}
    options: Any = validated_options(selected(live_site, given))
    assert (options.num_splits, options.ratio, options.mode.name, options.sizes) == (8, 1.0, "EXACT", (1, 2))
    assert (options.where.name, options.inner.depth) == ("b", 3)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"num_split": 8}, "options.\"attention.torch\".num_split: unknown option; did you mean 'num_splits'?"),
        ({"zzz": 8}, "unknown option; allowed: num_splits, ratio, mode, label, sizes, where, files, inner"),
        ({"inner": {"dept": 1}}, "options.\"attention.torch\".inner.dept: unknown option; did you mean 'depth'?"),
        (
            {"num_splits": "8"},
            "options.\"attention.torch\".num_splits: must be a whole number, not '8' (without quotes)",
        ),
        ({"num_splits": True}, "num_splits: must be a whole number, not True"),
        ({"num_splits": 0}, "num_splits: must be greater than or equal to 1, not 0"),
        ({"mode": "slow"}, "mode: must be 'fast' or 'exact', not 'slow'"),
        ({"label": 8}, "label: must be text, not 8 (in quotes, if it is meant as text)"),
        ({"sizes": [1, "x"]}, "sizes.1: must be a whole number"),
    ],
)
def test_what_an_option_may_not_be(live_site: Site, given: dict[str, Any], text: str) -> None:
    message = refused(live_site, given)
    assert text in message
    assert message.startswith("attention plugin 'torch' (acme 1.0) refuses its options: ")


def test_every_problem_is_told(live_site: Site) -> None:
    message = refused(live_site, {"num_split": 1, "ratio": "x"})
    assert "num_split: unknown" in message
    assert "ratio: must be a number, not 'x'" in message


def test_a_required_option(live_site: Site) -> None:
    assert 'options."attention.torch".needed: must be given' in refused(live_site, {}, "Strict")


def test_a_model_that_allows_anything_is_let(live_site: Site) -> None:
    assert validated_options(selected(live_site, {"any": [1]}, "Free")) is not None


def test_a_plugin_without_options(live_site: Site) -> None:
    assert 'has no options, but options."attention.torch".x is set: remove it' in refused(live_site, {"x": 1}, None)


def test_no_options_are_needed_where_there_are_none(live_site: Site) -> None:
    assert validated_options(selected(live_site, {}, None)) is None


@pytest.mark.parametrize(
    ("model", "text"), [("NOT_A_MODEL", "is no pydantic model"), ("Optons", "has no 'Optons'; did you mean 'Options'?")]
)
def test_a_manifest_that_names_no_model(live_site: Site, model: str, text: str) -> None:
    assert text in refused(live_site, {}, model)


def test_a_relative_path_counts_from_its_folder_if_it_has_one(live_site: Site) -> None:
    given = {"where": "a/b", "label": "a/b", "files": ["c", "/d"], "inner": {"cache": "../e"}}
    everywhere = {"where": "/stack", "label": "/stack", "files": "/stack", "inner.cache": "/usr"}
    plugin = replace(selected(live_site, given), option_folders=everywhere)
    options: Any = validated_options(plugin)
    assert (options.where, options.label) == (Path("/stack/a/b"), "a/b")
    assert options.files == [Path("/stack/c"), Path("/d")]
    assert options.inner.cache == Path("/e")
    # What was written is kept: the hash and the messages are of no machine's folders.
    assert plugin.options == given
    unmoved: Any = validated_options(replace(plugin, option_folders={"label": "/stack"}))
    assert unmoved.where == Path("a/b")
    home: Any = validated_options(replace(plugin, options={"where": "~/x"}))
    assert home.where == Path("~/x")
