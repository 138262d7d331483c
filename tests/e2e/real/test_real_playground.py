"""The playground in a headless Chromium: what a user does with it, against a server with the real model."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.e2e.http.servers import SIMULATED, SLOW, Server, script, serving

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 120_000
"""Milliseconds after which a test gives up on the page. Generous: it is no measurement."""
MARKUP = "<img src=x onerror=alert(1)><script>document.title = 'taken'</script>**bold**"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Root has no sandbox of Chromium's; the pages are the project's own.
        flags = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


class Visit:
    """A page of one server, in a profile of its own. Nothing it does may leave the server or fail in the script."""

    def __init__(self, browser: Browser, server: Server) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 800})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.elsewhere: list[str] = []
        self.errors: list[str] = []
        self._url = server.url
        self.page.on("request", self._on_request)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(server.url)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith(self._url):
            self.elsewhere.append(request.url)

    def _on_console(self, message: ConsoleMessage) -> None:
        # The browser itself notes every status that is an error; those are answers, which the page shows.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.errors.append(message.text)

    def ask(self, text: str, **settings: str) -> None:
        for name, value in settings.items():
            self.page.fill(f"#{name}", value)
        self.page.fill("#question", text)
        self.page.press("#question", "Enter")

    def answered(self) -> str:
        expect(self.page.locator(".turn.running")).to_have_count(0, timeout=PATIENCE)
        return self.page.locator(".turn.assistant .body").last.text_content() or ""

    def foot(self) -> str:
        return self.page.locator(".turn.assistant .foot").last.text_content() or ""

    def close(self) -> None:
        self.context.close()
        assert self.elsewhere == []
        assert self.errors == []


@pytest.fixture
def visit(browser: Browser, real: Server) -> Iterator[Visit]:
    visit = Visit(browser, real)
    yield visit
    visit.close()


def test_an_answer_is_streamed_with_its_figures_and_the_stack(visit: Visit) -> None:
    expect(visit.page.locator("#model")).to_have_text("SmolLM2-135M-Instruct")
    expect(visit.page.locator("#stack dt", has_text="schedule_policy")).to_be_visible(timeout=PATIENCE)
    visit.ask("What is the capital of France?", temperature="0", max_completion_tokens="24")
    assert "Paris" in visit.answered()
    for figure in ("tokens", "tokens/s", "first after", "prompt"):
        assert figure in visit.foot()
    visit.ask("And of Spain?")
    visit.answered()
    assert "cached" in visit.foot()
    visit.page.click("#clear")
    expect(visit.page.locator(".turn")).to_have_count(0)


def test_json_mode_keeps_to_the_schema_and_shows_a_refusal(visit: Visit) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"enum": [41, 42]}},
        "required": ["n"],
        "additionalProperties": False,
    }
    visit.page.click("#schema-part summary")
    visit.page.check("#use-schema")
    visit.ask("A number, please.", schema=json.dumps(schema), temperature="0", max_completion_tokens="40")
    assert json.loads(visit.answered())["n"] in (41, 42)
    assert "valid JSON" in visit.foot()
    visit.ask("Again.", schema='{"not": {}}')
    visit.answered()
    assert "not" in (visit.page.locator(".turn .problem").text_content() or "")
    visit.ask("Again.", schema="{")
    expect(visit.page.locator("#schema-problem")).to_contain_text("JSON")


def test_tokens_are_coloured_and_tell_what_else_there_was(visit: Visit) -> None:
    visit.page.check("#logprobs")
    visit.ask("Say hello.", temperature="0", max_completion_tokens="6")
    visit.answered()
    tokens = visit.page.locator(".token")
    assert tokens.count() == 6
    tokens.first.hover()
    expect(visit.page.locator("#hover tr")).to_have_count(5)
    expect(visit.page.locator("#hover tr.chosen")).to_have_count(1)
    visit.page.mouse.move(1, 1)
    expect(visit.page.locator("#hover")).to_be_hidden()


def test_what_a_model_writes_is_text_and_a_key_is_asked_for(browser: Browser) -> None:
    answers = script(MARKUP, "a long answer " * 200)
    with serving(*SIMULATED, *SLOW, *answers, "--api-key", "k", "--admin-api-key", "a", check=False) as server:
        visit = Visit(browser, server)
        expect(visit.page.locator("#key")).to_be_visible(timeout=PATIENCE)
        visit.page.fill("#key-text", "wrong")
        visit.page.press("#key-text", "Enter")
        expect(visit.page.locator("#key-problem")).to_contain_text("valid key")
        visit.page.fill("#key-text", "k")
        visit.page.press("#key-text", "Enter")
        expect(visit.page.locator("#key")).to_be_hidden(timeout=PATIENCE)
        visit.ask("Markup?")
        assert visit.answered() == MARKUP
        assert visit.page.locator(".turn img, .turn script").count() == 0
        assert visit.page.title() == "Jackfield playground"
        visit.ask("Go on.")
        expect(visit.page.locator(".turn.running .body")).to_contain_text("a long answer", timeout=PATIENCE)
        visit.page.click("#stop")
        assert "a long answer" in visit.answered()
        assert "stopped" in visit.foot()
        visit.close()
