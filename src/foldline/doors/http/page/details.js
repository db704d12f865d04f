// The explanation of a message: the folds that cover it, its tokens, its original; and the pin.

import { get, post, sessionPath } from "./api.js";
import { announce, el, number, plural, seqs, time } from "./dom.js";
import { argumentsOf, who } from "./rows.js";

/** The details in `aside`. `options`: id, signal, turnOfFold, foldOf, reveal, changed, closed. */
export function detailsPanel(aside, options) {
  const { id, signal } = options;
  let back = null; // where the keyboard goes when they are closed
  let asked = 0;

  function close() {
    if (aside.hidden) return;
    asked += 1;
    aside.hidden = true;
    aside.replaceChildren();
    options.closed();
    if (back?.isConnected) back.focus();
    else options.lost();
    back = null;
  }

  function show(title, ...content) {
    const scrolled = aside.hidden ? 0 : aside.scrollTop;
    aside.replaceChildren(
      el("div", { class: "details-head" },
        el("h2", { id: "details-heading", tabindex: -1, text: title }),
        el("button", { type: "button", class: "quiet close", "aria-label": "Close details", text: "×", on: { click: close } })),
      ...content);
    if (!aside.hidden) aside.scrollTop = scrolled;
    aside.hidden = false;
    options.opened();
  }

  function open(origin, title, ...content) {
    if (origin) back = origin;
    aside.hidden = true;
    show(title, ...content);
    aside.scrollTop = 0;
    aside.querySelector("h2").focus();
  }

  async function loadMessage(seq) {
    const mine = ++asked;
    try {
      const entry = await get(sessionPath(id, `/history/${seq}`), signal);
      return mine === asked ? entry : null;
    } catch (failure) {
      if (mine === asked && !signal.aborted) show(`Message ${seq}`, el("p", { class: "error", role: "alert", text: failure.message }));
      return null;
    }
  }

  function fold(one, { heading = true } = {}) {
    const turn = options.turnOfFold(one.id);
    const at = one.at ?? turn?.began;
    return el("li", { class: "why" },
      heading && el("p", { class: "why-head" }, el("b", { text: one.reducer }), ` · ${one.stop - one.start === 1 ? "message" : "messages"} ${seqs(one.start, one.stop)}`,
        one.in_effect === false && el("span", { class: "mark", text: "not in effect" })),
      el("p", { dir: "auto", text: one.reason }),
      el("p", { class: "note" }, `${number(one.before_tokens)} → ${number(one.tokens)} tokens`,
        turn ? ` · in turn ${number(turn.number)}` : "", at ? " · " : "", at ? time(at, { inFull: true }) : ""));
  }

  function message(entry) {
    const pinned = entry.state === "pinned";
    const folds = entry.folds ?? [];
    const error = el("p", { class: "error", role: "alert", hidden: true });
    const pin = el("button", { type: "button", class: "pin", "aria-pressed": String(pinned), text: pinned ? "Unpin" : "Pin" });
    pin.addEventListener("click", async () => {
      try {
        await post(sessionPath(id, "/pin"), { seq: entry.seq, pinned: !pinned });
        announce(`Message ${entry.seq} ${pinned ? "unpinned" : "pinned"}`);
        const fresh = await loadMessage(entry.seq);
        if (fresh) {
          show(`Message ${fresh.seq}`, ...message(fresh));
          aside.querySelector(".pin").focus();
        }
        options.changed();
      } catch (failure) {
        error.textContent = failure.message;
        error.hidden = false;
      }
    });
    const attempt = async (work) => {
      error.hidden = true;
      try {
        await work();
        close();
        options.changed();
      } catch (failure) {
        error.textContent = failure.message;
        error.hidden = false;
      }
    };
    const goBack = el("button", { type: "button", class: "rewind", text: "Go back to before this" });
    goBack.addEventListener("click", () => attempt(async () => {
      const { left } = await post(sessionPath(id, "/rewind"), { seq: entry.seq });
      announce(`${plural(left, "message")} left`);
    }));
    const last = el("input", { type: "number", class: "last", min: entry.seq, value: entry.seq, "aria-label": "Fold from here to message" });
    const foldHere = el("button", { type: "button", class: "fold-here", text: "Fold from here to" });
    foldHere.addEventListener("click", () => attempt(async () => {
      announce("Folding");
      const { folds: made } = await post(sessionPath(id, "/fold"), { first: entry.seq, last: Number(last.value) });
      announce(`${plural(made.length, "fold")} made`);
    }));
    const shown = folds.filter((one) => one.in_effect !== false && one.shown);
    return [
      el("dl", { class: "facts" },
        fact("From", who(entry)), fact("State", state(entry)), fact("Tokens", number(entry.tokens)),
        entry.at && el("div", {}, el("dt", { text: "Recorded" }), el("dd", {}, time(entry.at, { inFull: true })))),
      el("div", { class: "buttons" }, pin, goBack, foldHere, last), error,
      folds.length > 0 && el("h3", { text: "Why" }),
      folds.length > 0 && el("ol", { class: "whys", "aria-label": "Folds" }, ...folds.map((one) => fold(one))),
      ...shown.slice(-1).flatMap((one) => [el("h3", { text: "Shown in its place" }), text(one.shown)]),
      el("h3", { text: "Original" }),
      ...original(entry),
    ].filter(Boolean);
  }

  return {
    close,
    get isOpen() { return !aside.hidden; },
    /** The message `seq` in full, with the folds that cover it. */
    async message(seq, origin) {
      const entry = await loadMessage(seq);
      if (entry) open(origin, `Message ${seq}`, ...message(entry));
    },
    /** A row that stands for several messages, with the fold that made it. */
    async fold(row, origin) {
      const first = await loadMessage(row.start);
      if (!first) return;
      const one = first.folds.find((fold) => fold.id === row.fold);
      const go = el("button", { type: "button", text: `Show messages ${seqs(row.start, row.stop)}` });
      go.addEventListener("click", () => options.reveal(row.start));
      open(origin, `Messages ${seqs(row.start, row.stop)}, folded`,
        el("dl", { class: "facts" },
          fact("By", one?.reducer ?? ""),
          fact("Stands for", plural(row.stop - row.start, "message"))),
        el("div", { class: "buttons" }, go),
        one && el("h3", { text: "Why" }),
        one && el("ol", { class: "whys", "aria-label": "Folds" }, fold(one, { heading: false })),
        el("h3", { text: "Shown in their place" }), text(row.text));
    },
    /** The parts of every request: the system text, the tools. */
    standing(row, origin) {
      asked += 1;
      open(origin, { tools: "Tools", rules: "Rules that stay" }[row.key] ?? "System text",
        el("dl", { class: "facts" }, fact("Tokens", number(row.tokens))), text(row.wire));
    },
  };
}

const STATES = {
  shown: "shown whole", hidden: "hidden from the model", shortened: "shown shortened", pinned: "pinned: never folded",
  repaired: "sent repaired",
};

const state = (entry) => STATES[entry.state] ?? entry.state;
const fact = (term, words) => el("div", {}, el("dt", { text: term }), el("dd", { text: words }));
const text = (words, { isCode = true } = {}) =>
  el("pre", { class: isCode ? "text" : "text words", tabindex: 0, dir: "auto", text: words });

function original(entry) {
  const out = [];
  if (entry.text) out.push(text(entry.text, { isCode: who(entry) === "tool" }));
  for (const call of entry.calls ?? []) {
    out.push(el("p", { class: "note", text: `calls ${call.name}` }), text(pretty(argumentsOf(call))));
  }
  for (const result of entry.results ?? []) if (result.text !== entry.text) out.push(text(result.text));
  if (!out.length) out.push(el("p", { class: "note", text: "It has no text." }));
  return out;
}

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json; // what a model wrote need not be JSON
  }
}
