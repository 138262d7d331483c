"""`jackfield generate` with ids and with a JSON answer."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from jackfield.entrypoints.cli import main

RUN = ("--worker", "simulated", "--quiet", "--max-new-tokens", "3", "--ignore-eos", "--random-seed", "7")


def answer(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    assert main(["generate", *flags, *RUN]) == 0
    shown = capsys.readouterr()
    told: dict[str, Any] = json.loads(shown.out)
    return told


def test_the_answer_as_json_is_the_engines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = answer(capsys, "--input-ids", "5,6,7", "--json")
    assert len(whole["output_ids"]) == 3
    assert (whole["meta_info"]["prompt_tokens"], whole["meta_info"]["completion_tokens"]) == (3, 3)
    monkeypatch.setattr(sys, "stdin", io.StringIO("[5, 6, 7]\n"))
    again = answer(capsys, "--input-ids", "-", "--json", "--skip-tokenizer-init")
    assert again["output_ids"] == whole["output_ids"]
    assert again["text"] == ""
    assert main(["generate", "--input-ids", "5,6,7", *RUN]) == 0
    assert capsys.readouterr().out == whole["text"] + "\n"


def test_ids_that_do_not_exist_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--input-ids", "5,-1", "--json", *RUN]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "input_ids holds -1" in shown.err
