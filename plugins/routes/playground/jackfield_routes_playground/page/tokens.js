// Tokens coloured by their probability, with a table of what else the model might have said.

import { byId, element } from "./elements.js";

const BOUNDS = [0.1, 0.3, 0.6, 0.9];
const decoder = new TextDecoder();
const share = (logprob) => `${(100 * Math.exp(logprob)).toFixed(1)} %`;
const shown = (token) => JSON.stringify(token).slice(1, -1);

export function colour(token) {
  const probability = Math.exp(token.logprob);
  const rank = BOUNDS.filter((bound) => probability >= bound).length;
  const span = element("span", { className: `token p${rank}`, text: token.bytes ? decoder.decode(new Uint8Array(token.bytes)) : token.token });
  span.addEventListener("mouseenter", () => show(span, token));
  span.addEventListener("mouseleave", () => (byId("hover").hidden = true));
  return span;
}

// Tokens behind the end of the text, such as the one that ended it, are counted and scored, but are not text.
export function markOutside(body, text) {
  let length = 0;
  for (const span of body.querySelectorAll(".token")) {
    span.classList.toggle("outside", length >= text.length);
    length += span.textContent.length;
  }
}

function show(span, token) {
  const rows = token.top_logprobs.some(({ token: text }) => text === token.token) ? token.top_logprobs : [token, ...token.top_logprobs];
  const table = element("table", {}, rows.map((row) =>
    element("tr", { className: row.token === token.token ? "chosen" : "" }, [
      element("td", { text: shown(row.token) }),
      element("td", { text: share(row.logprob) }),
    ])));
  const hover = byId("hover");
  hover.replaceChildren(table);
  hover.hidden = false;
  const at = span.getBoundingClientRect();
  const below = at.bottom + hover.offsetHeight + 12 < innerHeight;
  // The style's own object may be written under a policy that forbids style attributes in markup.
  hover.style.left = `${Math.max(8, Math.min(at.left, innerWidth - hover.offsetWidth - 8))}px`;
  hover.style.top = `${below ? at.bottom + 6 : at.top - hover.offsetHeight - 6}px`;
}
