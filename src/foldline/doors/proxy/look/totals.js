// The head of the page: the savings, and all other totals.

import { byId, compact, dollars, el, number, percent } from "./dom.js";

const MODES = { "normal": "folds what does not fit", "dry-run": "dry run: only reports", "strict": "strict: refuses what does not fit" };

export const share = (saved, given) => (given > 0 ? saved / given : 0);

/** "saved", or the word for it in a dry run, which sends everything unchanged. */
export const savedWord = (mode) => (mode === "dry-run" ? "would be saved" : "saved");

/** Draw the upstream and the mode. */
export function drawAbout(state, when) {
  byId("about").replaceChildren(...[state.upstream, MODES[state.mode] ?? state.mode, "counted since "].filter(Boolean)
    .flatMap((words, at) => [at > 0 && " · ", words]).filter(Boolean), when(state.since));
}

/** Draw all totals. */
export function drawTotals(totals, mode) {
  const part = share(totals.saved_tokens, totals.given_tokens);
  byId("saved").replaceChildren(el("strong", { text: percent(part) }), ` of all tokens ${savedWord(mode)}`);
  const words = `${number(totals.given_tokens)} tokens given, ${number(totals.sent_tokens)} sent on, ${number(totals.saved_tokens)} ${savedWord(mode)}`;
  const bar = byId("balance");
  bar.setAttribute("aria-label", words);
  bar.querySelector(".sent").style.inlineSize = `${(totals.given_tokens > 0 ? 1 - part : 0) * 100}%`;
  bar.querySelector(".spared").style.inlineSize = `${part * 100}%`;
  byId("balance-words").textContent = `${compact(totals.given_tokens)} given → ${compact(totals.sent_tokens)} sent on`
    + ` · ${compact(totals.saved_tokens)} ${savedWord(mode)}`;
  byId("tiles").replaceChildren(
    tile("Requests", number(totals.requests)),
    tile("Folds", number(totals.folds)),
    totals.saved_usd !== null && tile("Input not paid for", `≈ ${dollars(totals.saved_usd)}`, {
      note: "At the catalogue's input prices; in conversations whose prompts the upstream caches, at the price of cached input. Less what summaries cost.",
    }),
    tile("Recovered", number(totals.recoveries), { note: "Refused by the upstream as too long, sent again smaller before the client saw it." }),
    tile("Cut silently", number(totals.truncations), { bad: totals.truncations > 0, note: "Prompts that the upstream is thought to have cut without a word." }),
    tile("Refused", number(totals.refused), { bad: totals.refused > 0, note: "Refused by this proxy: nothing more could be folded." }),
    tile("Failed upstream", number(totals.failed + totals.cut), { bad: totals.failed + totals.cut > 0, note: "Answered with an error by the upstream, or broken off." }),
    tile("Our faults", number(totals.faults), { bad: totals.faults > 0, note: "Faults of the proxy; the requests were passed on as they came." }),
  );
  document.title = totals.given_tokens > 0 ? `${percent(part)} ${savedWord(mode)} · Foldline proxy` : "Foldline proxy";
}

function tile(term, value, { bad = false, note = "" } = {}) {
  return el("div", { data: { state: bad ? "bad" : "well" }, title: note },
    el("dt", { text: term }), el("dd", {}, value, note && el("span", { class: "unseen", text: ` (${note})` })));
}
