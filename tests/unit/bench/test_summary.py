from __future__ import annotations

from jackfield.entrypoints.bench.summary import distribution, percentile, summary


def test_a_median_with_its_spread() -> None:
    told = summary([4.0, 2.0, 3.0, 5.0], "s", "lower")
    assert (told["value"], told["min"], told["max"], told["spread"]) == (3.5, 2.0, 5.0, 3 / 3.5)
    assert (told["unit"], told["better"], told["rounds"]) == ("s", "lower", [4.0, 2.0, 3.0, 5.0])
    assert summary([0.0], "s", "lower")["spread"] == 0


def test_percentiles_are_values_that_were_measured() -> None:
    hundred = [float(number) for number in range(1, 101)]
    assert [percentile(hundred, percent) for percent in (50, 90, 99, 100)] == [50.0, 90.0, 99.0, 100.0]
    assert [percentile([7.0], percent) for percent in (0, 50, 99)] == [7.0] * 3
    assert percentile([1.0, 2.0], 50) == 1.0
    assert percentile([1.0, 2.0], 51) == 2.0


def test_a_distribution() -> None:
    told = distribution([3.0, 1.0, 2.0])
    assert told == {"mean": 2.0, "p50": 2.0, "p90": 3.0, "p99": 3.0, "max": 3.0}
    assert distribution([]) is None
