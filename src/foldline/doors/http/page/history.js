// The pane of all recorded messages, a hundred messages at a time in both directions.

import { get, sessionPath } from "./api.js";
import { number, reconcile } from "./dom.js";
import { focusItem, following, roving, settle } from "./lists.js";
import { messageRow, said, who } from "./rows.js";

const PAGE = 100;
const NEAR_PX = 600;
const KEPT = 400; // of those that are read anew when states may have changed
const NEWEST = 2 ** 31 - 1;

/** The pane in `section` of the session `id`; `open` is called with a chosen entry, `across` when ← is pressed. */
export function historyPane(section, id, { signal, open, across, drawn }) {
  const list = section.querySelector(".list");
  const sums = section.querySelector(".pane-head p");
  let entries = [];
  let atStart = false;
  let atEnd = false;
  let total = 0;
  let span = null;
  let work = Promise.resolve();
  roving(list);
  const place = following(list, signal);

  const fetched = async (query) => (await get(sessionPath(id, `/history?${new URLSearchParams(query)}`), signal)).messages;
  // One after the other: each begins where the one before ended.
  const inOrder = (job) => (work = work.then(job, job));

  function draw() {
    reconcile(list, entries, {
      keyOf: (entry) => entry.seq,
      stampOf: (entry) => JSON.stringify([entry.state, entry.fold, entry.tokens, entry.text.length]),
      make: (entry) => messageRow({
        start: entry.seq, stop: entry.seq + 1, who: who(entry), state: entry.state, fold: entry.fold ?? null,
        tokens: entry.tokens, text: said(entry),
      }, () => open(entries.find((now) => now.seq === entry.seq) ?? entry)),
    });
    settle(list);
    mark();
    const first = entries[0]?.seq;
    const range = entries.length && !(atStart && atEnd) ? `, ${first}–${entries.at(-1).seq} loaded` : "";
    sums.textContent = `${number(total)} recorded${range}`;
    drawn();
  }

  function mark() {
    for (const item of list.children) {
      item.classList.toggle("in-turn", span !== null && span.start <= item.dataset.start && item.dataset.start < span.stop);
    }
  }

  async function newest() {
    entries = await fetched({ before: NEWEST, limit: PAGE });
    atStart = entries.length < PAGE;
    atEnd = true;
    draw();
    place.end();
  }

  const older = () => inOrder(async () => {
    if (atStart || !entries.length) return;
    const page = await fetched({ before: entries[0].seq, limit: PAGE });
    atStart = page.length < PAGE;
    const edge = list.getBoundingClientRect().top;
    const seen = [...list.children].find((item) => item.getBoundingClientRect().bottom > edge);
    const was = seen.getBoundingClientRect().top;
    entries = [...page, ...entries];
    draw();
    list.scrollTop += seen.getBoundingClientRect().top - was; // what was seen stays where it is
  });

  const newer = () => inOrder(async () => {
    if (atEnd || !entries.length) return;
    const page = await fetched({ after: entries.at(-1).seq, limit: PAGE });
    atEnd = page.length < PAGE;
    entries = [...entries, ...page];
    draw();
  });

  const around = (seq) => inOrder(async () => {
    if (entries.length && entries[0].seq <= seq && seq <= entries.at(-1).seq) return;
    entries = await fetched({ after: Math.max(-1, seq - 20), limit: PAGE });
    atStart = seq - 20 < 0;
    atEnd = entries.length < PAGE;
    draw();
  });

  const quietly = (promise) => promise.catch((failure) => { if (!signal.aborted) sums.textContent = failure.message; });
  list.addEventListener("scroll", () => {
    if (list.scrollTop < NEAR_PX && !atStart) quietly(older());
    if (list.scrollTop + list.clientHeight > list.scrollHeight - NEAR_PX && !atEnd) quietly(newer());
  }, { passive: true });
  list.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft") return;
    const item = event.target.closest("[data-key]");
    if (!item) return;
    event.preventDefault();
    across(Number(item.dataset.start));
  });

  const itemOf = (seq) => list.querySelector(`[data-key="${seq}"]`);

  return {
    list,
    /** The newest page. */
    start: () => inOrder(newest),
    /** Reload the shown messages, and load newer ones. */
    refresh: () => inOrder(async () => {
      if (!entries.length) return newest();
      const follows = atEnd && place.isAtEnd();
      if (entries.length > KEPT) trim();
      const last = entries.at(-1).seq;
      let fresh = [];
      let page;
      do {
        page = await fetched({ after: fresh.at(-1)?.seq ?? entries[0].seq - 1, limit: PAGE });
        fresh = [...fresh, ...page];
      } while (page.length === PAGE && (atEnd || fresh.at(-1).seq < last));
      if (page.length < PAGE) atEnd = true;
      entries = fresh;
      draw();
      if (follows) place.end();
      return undefined;
    }),
    count(recorded) {
      total = recorded;
    },
    /** Scroll to a message, loading its page if needed; with `focus` the keyboard follows. */
    async reveal(seq, { focus = false, block = "center" } = {}) {
      place.leave();
      await around(seq);
      const item = itemOf(seq);
      if (!item) return;
      if (focus) focusItem(list, item, { scroll: block });
      else item.scrollIntoView({ block });
    },
    /** Mark the messages [start, stop) of a turn; null for none. */
    chooseTurn(turn) {
      span = turn;
      mark();
    },
  };

  function trim() {
    const top = list.getBoundingClientRect().top;
    const seen = [...list.children].findIndex((item) => item.getBoundingClientRect().bottom > top);
    const from = Math.max(0, Math.min(seen - KEPT / 2, entries.length - KEPT));
    if (from > 0) atStart = false;
    if (from + KEPT < entries.length) atEnd = false;
    entries = entries.slice(from, from + KEPT);
  }
}
