// The settings of a request: fields of the page to fields of the body, and what of them outlasts a reload.

import { byId, element } from "./elements.js";

const SAVED = "jackfield-settings";

const NUMBERS = [
  ["temperature", "Temperature", { min: 0, max: 2, step: 0.1 }],
  ["top_p", "Top p", { min: 0.01, max: 1, step: 0.01 }],
  ["top_k", "Top k", { min: -1, step: 1 }],
  ["min_p", "Min p", { min: 0, max: 1, step: 0.01 }],
  ["max_completion_tokens", "Most tokens", { min: 1, step: 1 }],
  ["seed", "Seed", { step: 1 }],
  ["frequency_penalty", "Frequency penalty", { min: -2, max: 2, step: 0.1 }],
  ["presence_penalty", "Presence penalty", { min: -2, max: 2, step: 0.1 }],
  ["repetition_penalty", "Repetition penalty", { min: 0.1, max: 2, step: 0.05 }],
];

const SCHEMA = {
  type: "object",
  properties: {
    name: { type: "string" },
    age: { type: "integer", minimum: 0, maximum: 130 },
    likes: { type: "array", items: { type: "string" }, maxItems: 3 },
  },
  required: ["name", "age", "likes"],
  additionalProperties: false,
};

const SWITCHES = ["logprobs", "stream", "use-schema"];

export function setUp() {
  const grid = byId("parameters");
  for (const [name, label, limits] of NUMBERS) {
    const input = element("input", { type: "number", id: name, inputMode: "decimal", ...limits });
    grid.append(element("label", {}, [label, input]));
  }
  grid.append(element("label", { title: "Texts at which the answer ends, with commas between" }, ["Stop", element("input", { id: "stop-texts" })]));
  byId("schema").value = JSON.stringify(SCHEMA, null, 2);
  restore();
  byId("panel").addEventListener("input", save);
}

export function usesSchema() {
  return byId("use-schema").checked;
}

// The body without the messages. Throws an Error that says what is wrong, after showing it beside its field.
export function fields() {
  const body = { stream: byId("stream").checked };
  if (body.stream) body.stream_options = { include_usage: true };
  for (const [name, label] of NUMBERS) {
    const input = byId(name);
    if (!input.checkValidity()) throw new Error(`${label}: ${input.validationMessage}`);
    if (input.value !== "") body[name] = Number(input.value);
  }
  const stops = byId("stop-texts").value.split(",").map((text) => text.trim()).filter(Boolean);
  if (stops.length) body.stop = stops;
  if (byId("logprobs").checked) Object.assign(body, { logprobs: true, top_logprobs: 5 });
  if (usesSchema()) {
    const schema = json("schema", "JSON schema");
    body.response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
  }
  if (byId("tools").value.trim()) {
    const tools = json("tools", "Tools");
    if (!Array.isArray(tools)) throw problem("tools", "Tools: this is no JSON list.");
    if (tools.length) body.tools = tools;
  }
  return body;
}

export const system = () => byId("system").value.trim();

function json(id, label) {
  byId(`${id}-problem`).textContent = "";
  try {
    return JSON.parse(byId(id).value);
  } catch (error) {
    throw problem(id, `${label}: ${error.message}`);
  }
}

function problem(id, text) {
  byId(`${id}-problem`).textContent = text;
  byId(id).closest("details").open = true;
  return new Error(text);
}

function save() {
  const kept = {};
  for (const id of [...NUMBERS.map(([name]) => name), "system", "schema", "tools", "stop-texts"]) kept[id] = byId(id).value;
  for (const id of SWITCHES) kept[id] = byId(id).checked;
  localStorage.setItem(SAVED, JSON.stringify(kept));
}

function restore() {
  let kept;
  try {
    kept = JSON.parse(localStorage.getItem(SAVED) ?? "{}");
  } catch {
    return; // written by something else: the settings begin anew
  }
  for (const [id, value] of Object.entries(kept)) {
    const field = byId(id);
    if (field === null) continue;
    if (typeof value === "boolean") field.checked = value;
    else field.value = value;
  }
}
