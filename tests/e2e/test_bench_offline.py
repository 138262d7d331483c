"""`jackfield bench offline` on the simulated worker. Its numbers are nobody's business here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jackfield import __version__
from jackfield.entrypoints.cli import main

RUN = ("--worker", "simulated", "--wait", "0", "--random-seed", "7")
SMALL = ("--requests", "3", "--prompt-tokens", "12", "--new-tokens", "4")


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = main(["bench", "offline", *words, *RUN, "--json"])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    found: dict[str, Any] = json.loads(shown.out)
    return found


def test_many_requests_with_a_shared_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(
        capsys, "--workload", "prefix", *SMALL, "--shared-prefix-tokens", "8", "--repeat", "2", "--label", "here"
    )
    assert (found["schema"], found["kind"], found["label"]) == (1, "offline", "here")
    assert found["workload"]["shared_prefix_tokens"] == 8
    assert [one["new_tokens"] for one in found["rounds"]] == [12, 12]
    # The cache is empty at the start of each round: what is found in it was computed within the round.
    assert all(one["cached_tokens"] <= 2 * 8 for one in found["rounds"])
    figure = found["results"]["output_tokens_per_s"]
    assert len(figure["rounds"]) == 2
    assert figure["min"] <= figure["value"] <= figure["max"]
    assert "decode_tokens_per_s" not in found["results"]
    assert len(found["stack"]["hash"]) == 64
    assert found["stack"]["plugins"]["worker.simulated"]["distribution"].startswith("jackfield-worker-simulated ")
    assert found["versions"]["jackfield"] == __version__
    assert set(found["machine"]) >= {"quiet", "cores", "cpu"}
    assert found["peak_rss_mib"]["self"] > 20
    assert found["args"]["random_seed"] == 7


def test_what_was_measured_is_told_where_it_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--prompt-tokens", "12", "--new-tokens", "4", "--repeat", "1", *RUN, "--json", "/dev/full"]
    assert main(["bench", "offline", *words]) == 2
    shown = capsys.readouterr()
    assert "bench: /dev/full cannot be written: No space left on device" in shown.err
    assert "decode_tokens_per_s" in shown.out


def test_one_request_and_options_of_a_plugin(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "told.json"
    words = ["--prompt-tokens", "12", "--new-tokens", "4", "--repeat", "1", "--worker.simulated.decode-us-per-row", "1"]
    assert main(["bench", "offline", *words, *RUN, "--json", str(file)]) == 0
    shown = capsys.readouterr().out
    found = json.loads(file.read_text())
    assert found["stack"]["plugins"]["worker.simulated"]["options"] == {"decode_us_per_row": 1.0}
    assert found["rounds"][0]["answers"] == 4
    assert set(found["results"]) >= {"decode_tokens_per_s", "prefill_tokens_per_s", "ttft_s"}
    # The table has the workload's own figure first.
    assert shown.splitlines()[:1] == ["decode: 1 x (12 -> 4 tokens)"]
    assert shown.splitlines()[2].startswith("decode_tokens_per_s")
    assert found["stack"]["hash"] in shown


def test_first_starts_processes_with_the_same_settings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from jackfield.entrypoints.bench import first_token

    commands = []
    monkeypatch.setattr(
        first_token,
        "one_start",
        lambda prompt, flags: commands.append((prompt, flags)) or {"first_token_s": 1.0, "peak_rss_mib": 9.0},
    )
    words = ["--no-debug", "--worker.simulated.decode-us-per-row=1", "--option", "worker.simulated.base_us=1"]
    found = told(capsys, "--workload", "first", "--repeat", "2", *words)
    assert found["results"]["first_token_s"]["rounds"] == [1.0, 1.0]
    assert len({tuple(prompt) for prompt, _ in commands}) == 3  # one warms up
    assert commands[0][1] == [
        "--random-seed=7",
        "--no-debug",
        "--worker=simulated",
        "--option=worker.simulated.base_us=1",
        "--worker.simulated.decode-us-per-row=1",
    ]
    assert len(found["stack"]["hash"]) == 64


def test_a_start_is_measured_to_its_first_byte() -> None:
    from jackfield.entrypoints.bench.first_token import one_start

    found = one_start([5, 6, 7], ["--worker=simulated"])
    assert 0 < found["first_token_s"] <= found["wall_s"]
    assert found["peak_rss_mib"] > 20
    assert found["cpu_seconds"] > 0


def test_a_start_that_fails_says_why() -> None:
    from jackfield.entrypoints.bench.first_token import one_start

    with pytest.raises(RuntimeError, match=r"ended with 2 and no token: .*no worker plugin 'zzz'"):
        one_start([5], ["--worker=zzz"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--workload", "decod"], "did you mean 'decode'"),
        (["--requests", "2"], "for another shape take --workload batch"),
        (["--requests", "0"], "0 is less than 1"),
        (["--repeat", "100"], "it must be at most 99"),
        (["--wait", "inf"], "is not a finite number"),
        (["--json", "/no/such/folder/x.json"], "cannot be written"),
        (["--json", ""], "the name of the file is empty"),
        (["--page-size", "0"], "--page-size"),
    ],
)
def test_what_is_refused_is_refused_before_a_model_is_loaded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], text: str
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "jackfield.entrypoints.engine", None)  # an import of it would raise
    assert main(["bench", "offline", *words]) == 2
    shown = capsys.readouterr()
    assert text in shown.err
    assert shown.out == ""


def test_help_tells_the_options_of_named_plugins(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "offline", "--worker", "simulated", "--help"]) == 0
    assert "--worker.simulated.base-us" in capsys.readouterr().out
