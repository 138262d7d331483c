// The page: the conversation, the composer, and what is asked of the server when it opens.

import { Answer, Turn } from "./answer.js";
import { byId, element } from "./elements.js";
import * as parameters from "./parameters.js";
import { chat, get, key, ServerError } from "./server.js";
import { showStack } from "./stack.js";

const IDEAS = ["What is a prefix cache?", "Write a haiku about queues.", "Count from one to ten."];
const THEME = "jackfield-theme";
const RETRY_MS = 1500;

const turns = [];
let model = "";
let running = null;

parameters.setUp();
setTheme(localStorage.getItem(THEME) ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
for (const idea of IDEAS) {
  const button = element("button", { type: "button", text: idea });
  button.addEventListener("click", () => ask(idea));
  byId("ideas").append(button);
}
if (innerWidth < 832) togglePanel();

byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
byId("toggle").addEventListener("click", togglePanel);
byId("clear").addEventListener("click", () => cutTo(0));
byId("stop").addEventListener("click", () => running?.abort());
byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  ask(byId("question").value.trim());
});
byId("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("composer").requestSubmit();
});
byId("key").addEventListener("submit", (event) => {
  event.preventDefault();
  key.set(byId("key-text").value);
  meet();
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
});
meet();

async function meet() {
  try {
    const { data } = await get("/v1/models");
    model = data[0].id;
    const { is_generation: writes, has_chat_template: chats } = await get("/model_info");
    byId("key").hidden = true;
    byId("model").textContent = model;
    const problem = !writes ? "this model writes no text" : !chats ? "this model has no chat template" : "";
    tell(problem, Boolean(problem));
    byId("send").disabled = Boolean(problem);
    await showStack();
  } catch (error) {
    if (error.status === 401) {
      byId("key").hidden = false;
      byId("key-problem").textContent = key.get() ? error.message : "";
      key.forget();
      byId("key-text").focus();
      return;
    }
    tell(error.message, true);
    // It is starting, or away for a moment.
    if (error.status === 503 || error.status === 0) setTimeout(meet, RETRY_MS);
  }
}

async function ask(text) {
  if (!text || running) return;
  let body;
  try {
    body = { model, ...parameters.fields() };
  } catch (error) {
    tell(error.message, true);
    return;
  }
  const question = new Turn("user", "You", text);
  const at = turns.length;
  question.button("Edit", () => edit(at));
  add(question);
  byId("question").value = "";
  await answer(body);
}

async function answer(body) {
  const system = parameters.system();
  const sent = turns.filter((turn, i) => !turn.failed && !turns[i + 1]?.failed);
  const messages = sent.map((turn) => turn.message);
  body.messages = system ? [{ role: "system", content: system }, ...messages] : messages;
  const turn = new Answer(model, { json: parameters.usesSchema() });
  const at = turns.length;
  add(turn);
  running = new AbortController();
  busy(true);
  tell("");
  const outcome = {};
  try {
    for await (const chunk of chat(body, running.signal)) {
      const follows = atEnd();
      turn.take(chunk);
      if (follows) toEnd();
    }
  } catch (error) {
    if (error.name === "AbortError") outcome.stopped = true;
    else outcome.problem = error instanceof ServerError ? error.message : `The page failed: ${error.message}`;
    if (error.status === 401) meet();
  } finally {
    running = null;
    busy(false);
  }
  turn.end(outcome);
  if (body.response_format && !outcome.problem && !outcome.stopped) turn.note(parses(turn.text));
  turn.button("Again", () => again(at));
  toEnd();
  byId("question").focus();
}

function parses(text) {
  try {
    JSON.parse(text);
    return "valid JSON";
  } catch (error) {
    return `no valid JSON: ${error.message}`;
  }
}

function again(at) {
  if (running) return;
  let body;
  try {
    body = { model, ...parameters.fields() };
  } catch (error) {
    tell(error.message, true);
    return;
  }
  cutTo(at);
  answer(body);
}

function edit(at) {
  if (running) return;
  byId("question").value = turns[at].text;
  cutTo(at);
  byId("question").focus();
}

function add(turn) {
  byId("welcome").hidden = true;
  turns.push(turn);
  byId("talk").append(turn.node);
  toEnd();
}

function cutTo(count) {
  running?.abort();
  for (const turn of turns.splice(count)) turn.node.remove();
  byId("welcome").hidden = turns.length > 0;
  tell("");
}

function busy(on) {
  byId("send").hidden = on;
  byId("stop").hidden = !on;
}

function tell(text, bad = false) {
  byId("state").textContent = text;
  byId("state").classList.toggle("bad", bad);
}

const atEnd = () => byId("talk").scrollHeight - byId("talk").scrollTop - byId("talk").clientHeight < 60;

function toEnd() {
  byId("talk").scrollTop = byId("talk").scrollHeight;
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem(THEME, theme);
}

function togglePanel() {
  const panel = byId("panel");
  panel.hidden = !panel.hidden;
  byId("toggle").setAttribute("aria-expanded", String(!panel.hidden));
}
