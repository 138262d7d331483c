"""Routes a checkpoint's tensors to the parts that asked for them, and reports all that does not fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from jackfield.hookspecs import LoadReport, Weight
from jackfield.layers.weight_reader import BadWeight, check_weight


@dataclass(frozen=True)
class Expected:
    """A tensor that some part asked for. `accept` may raise BadWeight.

    present    whether what is made of it is there already, so that it need only exist; its bytes are then not looked at
    """

    shape: tuple[int, ...]
    accept: Callable[[Weight], None]
    required: bool = True
    present: Callable[[], bool] = lambda: False


@dataclass
class WeightRouter:
    """The names that a model asked for, and the patterns that it knows and does not need."""

    expected: dict[str, Expected] = field(default_factory=dict)
    ignored: list[re.Pattern[str]] = field(default_factory=list)

    def expect(self, name: str, expected: Expected) -> None:
        """ValueError if two parts ask for one name: a mistake in the model's code."""
        if name in self.expected:
            raise ValueError(f"two parts of the model ask for the tensor {name}")
        self.expected[name] = expected

    def ignore(self, pattern: str) -> None:
        """A regular expression that matches whole names."""
        self.ignored.append(re.compile(pattern))

    def load(self, weights: Iterator[Weight]) -> LoadReport:
        """Every weight to its part. Never raises for the checkpoint's content; the report says it all."""
        loaded = 0
        seen: set[str] = set()
        unexpected: list[str] = []
        mis_shaped: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        rejected: dict[str, str] = {}
        for weight in weights:
            expected = self.expected.get(weight.name)
            if expected is None:
                if not any(pattern.fullmatch(weight.name) for pattern in self.ignored):
                    unexpected.append(weight.name)
                continue
            if weight.name in seen:
                rejected[weight.name] = "the checkpoint gives it twice"
                continue
            seen.add(weight.name)
            if tuple(weight.shape) != expected.shape:
                mis_shaped[weight.name] = (expected.shape, tuple(weight.shape))
                continue
            try:
                if not expected.present():
                    check_weight(weight)
                    expected.accept(weight)
            except BadWeight as error:
                rejected[error.name or weight.name] = str(error)
            else:
                loaded += 1
        missing = tuple(name for name, one in self.expected.items() if one.required and name not in seen)
        return LoadReport(
            loaded=loaded,
            missing=missing,
            unexpected=tuple(sorted(unexpected)),
            mis_shaped=mis_shaped,
            rejected=rejected,
        )
