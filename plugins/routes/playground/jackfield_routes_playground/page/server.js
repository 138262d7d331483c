// What the page asks the server: one function a question, errors in the server's own words. Knows no element of the page.

const KEY = "jackfield-key";

export class ServerError extends Error {
  constructor(status, message, param) {
    super(message);
    this.status = status;
    this.param = param;
  }
}

// The key lives as long as the tab: a key that stays behind in a browser is found by whoever uses it next.
export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (text) => sessionStorage.setItem(KEY, text),
  forget: () => sessionStorage.removeItem(KEY),
};

async function call(path, options = {}) {
  const headers = { ...options.headers };
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "The server does not answer.");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response) {
  const text = await response.text();
  try {
    const { message, param } = JSON.parse(text).error;
    return new ServerError(response.status, message, param);
  } catch {
    return new ServerError(response.status, `${response.status} ${response.statusText}`);
  }
}

export const get = async (path) => (await call(path)).json();

const post = (path, body, signal) =>
  call(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, signal });

// The chunks of a chat, in order; of an answer that is not streamed, the one chunk that it would have been.
export async function* chat(body, signal) {
  const response = await post("/v1/chat/completions", body, signal);
  if (!body.stream) {
    const { choices, usage } = await response.json();
    yield { choices: choices.map(({ message, ...rest }) => ({ ...rest, delta: message })), usage };
    return;
  }
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(200, chunk.error.message, chunk.error.param);
    yield chunk;
  }
  throw new ServerError(0, "The connection ended before the answer did.");
}

// The data of server-sent events. The server writes one line of data an event.
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const found = rest.split("\n\n");
    rest = found.pop();
    for (const event of found) {
      if (event.startsWith("data: ")) yield event.slice(6);
    }
  }
}
