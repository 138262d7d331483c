// One turn of the conversation on the page: its text, reasoning, calls, coloured tokens and figures, as they come.

import { element } from "./elements.js";
import { colour, markOutside } from "./tokens.js";

const WORDS = {
  stop: "",
  length: "cut off: most tokens reached",
  tool_calls: "calls a tool",
  abort: "ended by the server",
  content_filter: "filtered",
};

export class Turn {
  constructor(role, who, text = "") {
    this.role = role;
    this.text = text;
    this.reasoning = "";
    this.calls = [];
    this.failed = false; // a refusal: neither it nor its question is part of what is sent next
    this.body = element("div", { className: "body", text });
    this.foot = element("div", { className: "foot" });
    this.node = element("article", { className: `turn ${role}` }, [element("div", { className: "who", text: who }), this.body, this.foot]);
  }

  button(label, action) {
    const made = element("button", { type: "button", className: "quiet", text: label });
    made.addEventListener("click", action);
    this.foot.append(made);
  }

  note(text, className = "") {
    if (text) this.foot.append(element("span", { text, className }));
  }

  // as a message of the next request
  get message() {
    const message = { role: this.role, content: this.text };
    if (this.calls.length) {
      message.tool_calls = this.calls.map(({ id, name, args }) => ({ id, type: "function", function: { name, arguments: args } }));
    }
    return message;
  }
}

export class Answer extends Turn {
  constructor(who, { json }) {
    super("assistant", who);
    this.node.classList.add("running");
    if (json) this.body.classList.add("json");
    this.started = performance.now();
    this.first = null;
    this.usage = null;
    this.reason = null;
    this.scored = false;
  }

  take(chunk) {
    if (chunk.usage) this.usage = chunk.usage;
    for (const choice of chunk.choices) {
      const { content, reasoning_content: reasoning, tool_calls: calls } = choice.delta;
      if (content || reasoning || calls?.length || choice.logprobs?.content?.length) this.first ??= performance.now();
      if (reasoning) this.#reason(reasoning);
      for (const call of calls ?? []) this.#call(call);
      if (content) this.text += content;
      const tokens = choice.logprobs?.content;
      if (tokens?.length) {
        this.scored = true;
        this.body.append(...tokens.map(colour));
      } else if (content && !this.scored) {
        this.body.append(content);
      }
      if (choice.finish_reason) this.reason = choice.finish_reason;
    }
  }

  end({ stopped = false, problem = null } = {}) {
    const ended = performance.now();
    this.node.classList.remove("running");
    this.failed = problem !== null && !this.text && !this.calls.length;
    markOutside(this.body, this.text);
    if (problem) this.note(problem, "problem");
    this.note(stopped ? "stopped" : (WORDS[this.reason] ?? this.reason ?? ""));
    const tokens = this.usage?.completion_tokens;
    if (tokens) {
      const seconds = (ended - (this.first ?? this.started)) / 1000;
      this.note(`${tokens} tokens`);
      // The first token's time is the prompt's: the rate is that of those behind it.
      if (tokens > 1 && seconds > 0.001) this.note(`${((tokens - 1) / seconds).toFixed(1)} tokens/s`);
    }
    if (this.first !== null) this.note(`first after ${Math.round(this.first - this.started)} ms`);
    if (this.usage) {
      const cached = this.usage.prompt_tokens_details?.cached_tokens ?? 0;
      this.note(`prompt ${this.usage.prompt_tokens}${cached ? `, ${cached} cached` : ""}`);
    }
  }

  #reason(text) {
    if (!this.reasoning) {
      this.thought = element("div", { className: "text" });
      this.body.before(element("details", {}, [element("summary", { text: "Reasoning" }), this.thought]));
    }
    this.reasoning += text;
    this.thought.append(text);
  }

  #call({ index = this.calls.length, id, function: made }) {
    let call = this.calls[index];
    if (!call) {
      call = { id, name: made.name, args: "", node: element("div", { className: "call code" }, [element("b", { text: made.name }), " "]) };
      this.calls[index] = call;
      this.foot.before(call.node);
    }
    if (made.arguments) {
      call.args += made.arguments;
      call.node.append(made.arguments);
    }
  }
}
