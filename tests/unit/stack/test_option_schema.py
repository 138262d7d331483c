"""Texts turned into the values of options, by the JSON schema of every shape that pydantic gives."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from jackfield.stack.loading.option_schema import option_fields


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Deeper(BaseModel):
    weight: float = 0.5


class Nested(BaseModel):
    depth: int = Field(default=1, description="How deep.")
    deeper: Deeper = Deeper()


class Knot(BaseModel):
    knot: Knot | None = None


class Loop(BaseModel):
    """Holds itself without an end in sight."""

    name: str = ""
    loop: list[Loop] = Field(default_factory=list)


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")

    count: int = Field(3, ge=1, description="How many.")
    share: float = 0.5
    on: bool = False
    name: str
    colour: Colour = Colour.RED
    mode: Literal["fast", "slow"] = "fast"
    level: Literal[1, 2] | None = None
    maybe: int | None = None
    number_or_word: int | str = 1
    truth_or_number: bool | int = True
    names: list[str] = Field(default_factory=list)
    sizes: tuple[int, ...] = ()
    weights: dict[str, float] = Field(default_factory=dict)
    anything: Any = None
    folder: Path | None = None
    files: list[Path] = Field(default_factory=list)
    nested: Nested = Nested()
    knot: Knot = Knot()
    loop: Loop = Loop()


FIELDS = {".".join(field.path): field for field in option_fields(Options.model_json_schema())}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "64", 64),
        ("count", "-1", -1),
        ("share", "1e-3", 0.001),
        ("share", "2", 2.0),
        ("name", "007", "007"),
        ("name", "none", "none"),
        ("colour", "blue", "blue"),
        ("mode", "slow", "slow"),
        ("level", "2", 2),
        ("level", "none", None),
        ("maybe", "none", None),
        ("maybe", "7", 7),
        ("number_or_word", "7", 7),
        ("number_or_word", "seven", "seven"),
        ("truth_or_number", "yes", True),
        ("truth_or_number", "7", 7),
        ("names", "a, b", ["a", "b"]),
        ("names", '["a,b", "c"]', ["a,b", "c"]),
        ("names", "none", []),
        ("sizes", "1,2", [1, 2]),
        ("weights", '{"a": 0.5}', {"a": 0.5}),
        ("weights", "{a = 0.5}", {"a": 0.5}),
        ("anything", "[1, true]", [1, True]),
        ("folder", "~/x", "~/x"),
        ("files", "a,b", ["a", "b"]),
        ("nested.depth", "2", 2),
        ("nested.deeper.weight", "2", 2.0),
    ],
)
def test_a_text_becomes_a_value_of_the_options_type(name: str, text: str, value: Any) -> None:
    parsed = FIELDS[name].parse(text)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("count", "x", "'x' is not a whole number"),
        ("count", "1.5", "is not a whole number"),
        ("share", "half", "is not a number"),
        ("colour", "rde", "is not one of red, blue; did you mean 'red'?"),
        ("level", "3", "is not one of 1, 2 or none"),
        ("maybe", "seven", "is not a whole number or none"),
        ("sizes", "1,b", "is not a list (a whole number;"),
        ("names", "[1", "is not a list (text;"),
        ("weights", "[1]", "is not a JSON object"),
    ],
)
def test_a_text_of_another_type_is_refused_with_what_is_valid(name: str, text: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        FIELDS[name].parse(text)
    assert said in str(caught.value)


def test_what_help_needs() -> None:
    assert FIELDS["on"].is_switch
    assert not FIELDS["truth_or_number"].is_switch
    assert (FIELDS["names"].is_list, FIELDS["name"].is_list) == (True, False)
    assert (FIELDS["name"].required, FIELDS["count"].required) == (True, False)
    assert (FIELDS["count"].default, FIELDS["count"].description) == (3, "How many.")
    assert (FIELDS["mode"].choices, FIELDS["level"].choices) == (("fast", "slow"), ("1", "2", "none"))
    assert FIELDS["number_or_word"].choices == ()
    assert FIELDS["nested.depth"].description == "How deep."


def test_a_model_that_holds_itself_ends() -> None:
    assert [name for name in FIELDS if name.startswith(("knot", "loop"))] == ["knot.knot", "loop.name", "loop.loop"]
