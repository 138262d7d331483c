"""The documentation is true: references are up to date, links lead somewhere, and the tutorial's plugin works as told."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jackfield.entrypoints.cli import main
from jackfield.hookspecs import SPECS
from jackfield.managers.fields.sampling_params import FIELDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_references_are_what_the_code_says() -> None:
    subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], check=True)


def test_every_hook_has_a_description_with_its_process_and_an_example() -> None:
    page = (ROOT / "docs" / "reference" / "hooks.md").read_text()
    for spec in SPECS:
        for name, function in vars(spec).items():
            if name.startswith("jackfield_"):
                assert f"### `{name}(" in page
                assert "Process:" in function.__doc__, name
                assert "Example:" in function.__doc__, name


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]*)", page.read_text()):
        if target:
            assert (page.parent / target).exists(), target


def tutorial_files() -> dict[str, str]:
    """File name -> content: a paragraph that is only a name in backquotes, then a fenced block."""
    text = (ROOT / "docs" / "tutorial.md").read_text()
    return dict(re.findall(r"^`([\w/.-]+)`\n\n```\w+\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def tutorial_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tutorial's package, installed into a folder of its own."""
    project = tmp_path_factory.mktemp("short-answers")
    (command,) = re.findall(
        r"^    .venv/bin/jackfield (new .*)$", (ROOT / "docs" / "tutorial.md").read_text(), re.MULTILINE
    )
    assert main([*command.split(), "--directory", str(project)]) == 0
    files = tutorial_files()
    assert set(files) == {"short_answers/options.py", "short_answers/policy.py", "tests/test_policy.py"}
    for name, content in files.items():
        assert (project / name).exists()
        (project / name).write_text(content)
    site = tmp_path_factory.mktemp("site")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(site),
    ]
    subprocess.run([*pip, str(project)], check=True, capture_output=True, text=True)
    (site / "tests").mkdir()
    (site / "tests/test_policy.py").write_text(files["tests/test_policy.py"])
    return site


def run(site: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, cwd=site)


@pytest.mark.slow
def test_the_tutorials_policy_is_shown_chosen_and_tested(tutorial_site: Path) -> None:
    shown = run(tutorial_site, "-m", "jackfield", "plugins", "show", "schedule_policy.short-answers")
    assert shown.returncode == 0, shown.stderr
    assert "long_prompt" in shown.stdout
    command = ["-m", "jackfield", "explain", "--json", "--schedule-policy", "short-answers", "--option"]
    explained = run(tutorial_site, *command, "schedule_policy.short-answers.long_prompt=500")
    assert explained.returncode == 0, explained.stderr
    (row,) = [p for p in json.loads(explained.stdout)["stack"]["plugins"] if p["kind"] == "schedule_policy"]
    assert (row["name"], row["options"]) == ("short-answers", {"long_prompt": 500})
    misspelt = run(tutorial_site, *command, "schedule_policy.short-answers.long_promt=500")
    assert misspelt.returncode == 2
    assert "long_prompt" in misspelt.stderr
    tested = run(tutorial_site, "-m", "pytest", "-q", "tests/test_policy.py")
    assert tested.returncode == 0, tested.stdout


@pytest.mark.slow
def test_the_tutorials_policy_does_not_enter_the_references(tutorial_site: Path) -> None:
    """Whoever followed the tutorial can still run `make docs` and the tests."""
    code = f"import runpy; print('\\n'.join(runpy.run_path({str(ROOT / 'docs' / 'generate.py')!r})['plugins']()))"
    done = run(tutorial_site, "-c", code)
    assert done.returncode == 0, done.stderr
    assert "### fcfs" in done.stdout
    assert "short-answers" not in done.stdout


@pytest.mark.slow
@pytest.mark.model
def test_the_tutorials_policy_serves(tutorial_site: Path, embedded_model: Path) -> None:
    command = ["-m", "jackfield", "generate", "Hello", "--schedule-policy", "short-answers", "--worker", "simulated"]
    done = run(tutorial_site, *command, "--max-new-tokens", "4", "--option", "worker.simulated.script=Good day")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Good day\n"
    assert "schedule_policy=short-answers" in done.stderr


@pytest.mark.slow
@pytest.mark.model
def test_the_tutorials_order_is_the_one_it_tells(tutorial_site: Path, embedded_model: Path) -> None:
    (code,) = [block for block in python_blocks("tutorial.md") if 'schedule_policy="short-answers"' in block]
    done = run(tutorial_site, "-c", code)
    assert done.returncode == 0, done.stderr
    assert f"# {', '.join(done.stdout.split())}\n" in code


@pytest.mark.slow
@pytest.mark.model
def test_the_engines_page_and_that_of_chats_run_from_top_to_bottom(embedded_model: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "-c", "".join([*python_blocks("engine.md"), *python_blocks("openai.md")]))
    assert done.returncode == 0, done.stderr
    assert " Paris." in done.stdout
    assert "there is no sampling parameter 'max_tokens' here; did you mean 'max_new_tokens'?" in done.stdout


def test_the_engines_page_names_every_sampling_parameter() -> None:
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "engine.md").read_text(), flags=re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(FIELDS)


def test_the_readmes_refusal_is_the_real_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--attention-backend", "trch"]) == 2
    assert capsys.readouterr().err.strip() in (ROOT / "README.md").read_text()
