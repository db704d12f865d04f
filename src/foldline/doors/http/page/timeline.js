// The turns of a session as bars: the size of the context in each, and the folds.

import { compact, el, number, plural, reconcile, seqs } from "./dom.js";
import { focusItem, roving, settle } from "./lists.js";

const FAR_ABOVE = 3; // a limit that is so many times the largest turn leaves the picture: the bars would be a line

/** The timeline in `section`; `open` is called with a chosen turn. */
export function timeline(section, open) {
  const list = section.querySelector("ol");
  const about = section.querySelector(".turn-about");
  const limit = section.querySelector(".limit");
  let turns = [];
  let chosen = null;
  roving(list, { row: true });

  const turnOf = (target) => turns.find((turn) => String(turn.number) === target.closest("[data-key]")?.dataset.key);
  const tell = (turn) => { about.textContent = turn ? words(turn) : ""; };
  list.addEventListener("pointerover", (event) => tell(turnOf(event.target) ?? chosen ?? turns.at(-1)));
  list.addEventListener("pointerleave", () => tell(chosen ?? turns.at(-1)));
  list.addEventListener("focusin", (event) => tell(turnOf(event.target)));
  list.addEventListener("focusout", () => tell(chosen ?? turns.at(-1)));

  return {
    draw(newTurns, session) {
      const atEnd = list.scrollLeft + list.clientWidth >= list.scrollWidth - 8;
      turns = newTurns;
      const largest = Math.max(...turns.map((turn) => turn.prompt_tokens), 1);
      const bound = session.limit_tokens ?? 0;
      const above = bound > FAR_ABOVE * largest;
      const top = above ? largest * 1.6 : 1.2 * Math.max(bound, largest); // with room for a mark above a bar
      reconcile(list, turns, {
        keyOf: (turn) => turn.number,
        stampOf: (turn) => JSON.stringify([turn, top]),
        make: (turn) => bar(turn, top, () => {
          chosen = turn;
          for (const item of list.children) item.classList.toggle("chosen", item.dataset.key === String(turn.number));
          open(turn);
        }),
      });
      settle(list, list.querySelector(".chosen") ?? (list.contains(document.activeElement) ? null : list.lastElementChild));
      limit.hidden = bound === 0;
      limit.classList.toggle("above", above);
      limit.style.insetBlockEnd = above ? "100%" : `${(bound / top) * 100}%`;
      limit.textContent = `limit ${compact(bound)}${above ? ", above" : ""}`;
      if (atEnd) list.scrollLeft = list.scrollWidth;
      tell(chosen ?? turns.at(-1));
    },
    turnOf: (seq) => turns.find((turn) => turn.start <= seq && seq < turn.stop),
    /** The turn in which a fold was made, if it is one of those that are shown. */
    turnOfFold: (id) => turns.find((turn) => turn.folds.includes(id)),
    focusLast: () => focusItem(list, list.lastElementChild),
  };
}

function bar(turn, top, open) {
  const size = el("span", { class: "size" });
  size.style.blockSize = `${Math.max(2, (turn.prompt_tokens / top) * 100)}%`;
  const fold = turn.folds.length > 0 && el("span", { class: "fold" });
  if (fold) fold.style.insetBlockEnd = size.style.blockSize;
  const state = turn.reason === "" ? "running" : turn.reason === "done" ? "done" : "broken";
  return el("li", { data: { state } },
    el("button", { type: "button", tabindex: -1, "aria-label": words(turn), on: { click: open } }, size, fold));
}

function words(turn) {
  const ended = { done: "", "": "running" }[turn.reason] ?? turn.reason.replaceAll("_", " ");
  const size = turn.prompt_tokens ? `${number(turn.prompt_tokens)} tokens` : "size not reported";
  const folds = turn.folds.length ? plural(turn.folds.length, "fold") : "";
  const label = turn.stop - turn.start === 1 ? "message" : "messages";
  return [`Turn ${number(turn.number)}`, `${label} ${seqs(turn.start, turn.stop)}`, size, folds, ended].filter(Boolean).join(" · ");
}
