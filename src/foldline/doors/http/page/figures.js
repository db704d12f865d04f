// The head of a session in figures: the window and its parts, the totals, the current activity.

import { el, goingOn, level, number, percent, plural } from "./dom.js";

const PARTS = [["system", "System"], ["tools", "Tools"], ["folded", "Folds"], ["messages", "Messages"]];

/** Draw the window as a bar of parts. `context` may still be missing. */
export function drawWindow(section, session, context) {
  const window_tokens = session.window_tokens;
  const tokens = context?.tokens ?? session.tokens;
  const share = window_tokens > 0 ? tokens / window_tokens : 0;
  const sum = section.querySelector(".sum");
  sum.replaceChildren(
    el("strong", { text: percent(share) }), ` ${number(tokens)} of ${number(window_tokens)} tokens`);
  sum.dataset.level = level(share);
  const parts = PARTS.map(([name, title]) => [name, title, context?.parts?.[name] ?? 0]).filter(([, , size]) => size > 0);
  section.querySelector(".parts").replaceChildren(...parts.map(([name, , size]) => {
    const piece = el("span", { data: { part: name } });
    piece.style.inlineSize = `${(size / Math.max(window_tokens, tokens, 1)) * 100}%`;
    return piece;
  }));
  const words = parts.map(([, title, size]) => `${title} ${number(size)}`);
  section.querySelector(".parts").setAttribute(
    "aria-label", `${number(tokens)} of ${number(window_tokens)} tokens: ${words.join(", ") || "nothing yet"}`);
  section.querySelector(".legend").replaceChildren(...parts.map(([name, title, size]) =>
    el("li", { data: { part: name } }, title, " ", el("b", { text: number(size) }))));
}

/** Draw the totals as terms and figures. */
export function drawTotals(list, session) {
  const { usage = {}, figures = {}, resume = null } = session;
  const rows = [
    ["Prompt", usage.prompt_tokens ?? figures.total_prompt_tokens],
    ["Completion", usage.completion_tokens ?? figures.total_completion_tokens],
    ["Cached", usage.cached_tokens],
    ["Last prompt", figures.last_prompt_tokens || null],
    ["Turns", session.turns],
    ["Folds", session.folds],
  ];
  list.replaceChildren(...rows.filter(([, value]) => value !== undefined && value !== null)
    .map(([term, value]) => el("div", {}, el("dt", { text: term }), el("dd", { text: number(value) }))),
  ...(resume ? [el("div", {}, el("dt", { text: "Next input" }), el("dd", { text: goingOn(resume.cold_usd, resume.warm_usd, resume.cold) }))] : []));
}

/** Draw the current activity. */
export function drawState(mark, session) {
  const runs = session.state === "running";
  mark.textContent = runs ? "running" : "idle";
  if (runs && session.queued > 0) mark.textContent += `, ${number(session.queued)} waiting`;
  mark.dataset.state = runs ? "running" : "idle";
}

/** A session in one line. */
export function about(session) {
  return [session.model, session.policy, plural(session.messages, "message"), session.id].filter(Boolean).join(" · ");
}
