// Messages as rows of a list: number, author, state, tokens, and the beginning of the text.

import { el, number, seqs } from "./dom.js";

const SHOWN_CHARACTERS = 500; // of which two lines are seen
const STATES = { hidden: "hidden", shortened: "shortened", pinned: "pinned", repaired: "repaired" };

/** The author of a message; its kind if the agent itself made it. */
export function who(message) {
  if (message.results?.length) return "tool";
  return message.kind && message.kind !== "message" ? message.kind.replaceAll("_", " ") : message.role;
}

/** A whole message as text: words, calls after an arrow, results after a reversed one. */
export function said(message) {
  const pieces = [message.text];
  for (const call of message.calls ?? []) pieces.push(`→ ${call.name} ${argumentsOf(call)}`);
  for (const result of message.results ?? []) if (result.text !== message.text) pieces.push(`← ${result.text}`);
  return pieces.filter(Boolean).join("\n");
}

export function argumentsOf(call) {
  return typeof call.arguments === "string" ? call.arguments : JSON.stringify(call.arguments);
}

/**
 * A row that opens details. `message`: start, stop, who, state, tokens, text, fold, and `largest`, the tokens at which
 * its bar is full.
 */
export function messageRow(message, open) {
  const { start, stop, state = "shown", fold = null, tokens = 0, text = "", largest = 0 } = message;
  const place = start === null ? "" : seqs(start, stop);
  const begins = text.slice(0, SHOWN_CHARACTERS).replace(/\s+/g, " ");
  const mark = fold !== null && state === "shown" ? "folded" : STATES[state];
  const name = [place && (stop - start > 1 ? `Messages ${place}` : `Message ${place}`), message.who, mark,
    `${number(tokens)} tokens`].filter(Boolean).join(", ");
  const bar = largest > 0 ? el("span", { class: "weight" }) : null;
  if (bar) bar.style.inlineSize = `${Math.min(100, (tokens / largest) * 100)}%`;
  return el("li", {
    data: { state, ...(fold === null ? {} : { fold }), ...(start === null ? {} : { start, stop }), who: message.who },
  }, el("button", {
    type: "button", class: "row", tabindex: -1, "aria-label": `${name}: ${begins.slice(0, 120)}`, on: { click: open },
  },
  el("span", { class: "seq", text: place }),
  el("span", { class: "who", text: message.who }),
  mark && el("span", { class: "mark", text: mark }),
  el("span", { class: "tokens", text: number(tokens) }),
  el("span", { class: "text", dir: "auto", text: begins }),
  bar));
}
