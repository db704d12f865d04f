// The list of sessions: the fill of each context, its model and policy, and its state.

import { get, post } from "./api.js";
import { announce, byId, el, fromTemplate, meter, number, paced, percent, plural, reconcile, time } from "./dom.js";
import { focusItem, roving, settle } from "./lists.js";
import { follow } from "./live.js";

const PAGE = 50;
const TELLING = new Set(["accepted", "behind", "deleted", "fold_finished", "reply", "turn_ended"]);

/** The view, as an element; it is alive until the signal aborts. */
export function sessionsView(signal, connection) {
  const view = fromTemplate("sessions-view");
  const list = view.querySelector(".rows");
  const more = view.querySelector(".more");
  const empty = view.querySelector(".empty");
  const error = view.querySelector(".error");
  const filter = view.querySelector("#filter");
  let rows = [];
  let next = null;
  let asked = 0;

  function draw() {
    reconcile(list, rows, { keyOf: (row) => row.id, stampOf: JSON.stringify, make: sessionRow });
    settle(list);
    more.hidden = next === null;
    empty.hidden = rows.length > 0;
    empty.textContent = filter.value.trim() ? "No session matches." : "No sessions yet.";
  }

  async function load({ further = false } = {}) {
    const mine = ++asked;
    const query = new URLSearchParams({ limit: further ? PAGE : Math.min(200, Math.max(PAGE, rows.length)) });
    if (filter.value.trim()) query.set("query", filter.value.trim());
    if (further) query.set("after", next);
    try {
      const found = await get(`v1/sessions?${query}`, signal);
      if (mine !== asked) return;
      rows = further ? [...rows, ...found.sessions] : found.sessions;
      next = found.next ?? null;
      error.hidden = true;
      draw();
    } catch (failure) {
      if (signal.aborted) return;
      error.textContent = `The sessions cannot be shown: ${failure.message}`;
      error.hidden = false;
    }
  }

  const soon = paced(300, () => { if (!signal.aborted) load(); });
  const typed = paced(200, () => load().then(() => { if (!signal.aborted) announce(plural(rows.length, "session")); }));
  filter.addEventListener("input", typed);
  view.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    focusItem(list, list.firstElementChild);
  });
  more.addEventListener("click", async () => {
    const last = list.lastElementChild;
    await load({ further: true });
    focusItem(list, last?.nextElementSibling);
  });
  view.querySelector("#new-session").addEventListener("click", () => begin(signal));
  roving(list);
  document.title = "Sessions · Foldline";
  load();
  follow("v1/events", {
    signal,
    onEvent: (name, data) => {
      if (name === "accepted" || name === "turn_ended") running(list, data.session, name === "accepted");
      if (TELLING.has(name)) soon();
    },
    onState: (state, seconds) => {
      connection(state, seconds);
      if (state === "live") load();
    },
  });
  return view;
}

// At once, before the figures arrive.
function running(list, id, runs) {
  const item = list.querySelector(`[data-key="${CSS.escape(id)}"]`);
  if (item) item.dataset.state = runs ? "running" : "idle";
}

function sessionRow(row) {
  const share = row.window_tokens > 0 ? row.tokens / row.window_tokens : 0;
  const title = row.title || "Untitled";
  const about = [row.model, row.policy].filter(Boolean).join(" · ");
  const state = row.queued > 0 ? `running, ${number(row.queued)} waiting` : "running";
  const runs = row.state === "running";
  return el("li", { data: { state: runs ? "running" : "idle" } },
    el("a", { class: "row", href: `#/s/${encodeURIComponent(row.id)}`, tabindex: -1 },
      el("span", { class: "what" },
        el("span", { class: row.title ? "name" : "name untitled", dir: "auto", text: title }),
        el("span", { class: "running", text: state }),
        el("span", { class: "about", dir: "auto" }, el("span", { text: about }), el("span", { class: "id", text: row.id })),
        row.damage && el("span", { class: "damage", text: `damaged: ${row.damage}` })),
      el("span", { class: "fullness" },
        meter(row.tokens, row.window_tokens),
        el("span", { class: "figures-line" },
          el("span", { text: `${number(row.tokens)} / ${number(row.window_tokens)}` }),
          el("span", { class: "share", text: percent(share) }))),
      count(row.turns, "turn"),
      count(row.folds, "fold"),
      el("span", { class: "when" }, time(row.updated))));
}

function count(value, noun) {
  return el("span", { class: `count ${noun}s` }, number(value), el("span", { class: "noun", text: ` ${value === 1 ? noun : `${noun}s`}` }));
}

/** Ask for the settings of a new session, create it, and open it. */
function begin(signal) {
  const dialog = byId("new-dialog");
  const form = dialog.querySelector("form");
  const error = dialog.querySelector(".error");
  form.reset();
  error.hidden = true;
  const own = new AbortController();
  dialog.addEventListener("close", () => own.abort(), { once: true });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const wanted = {};
    if (byId("new-title").value.trim()) wanted.title = byId("new-title").value.trim();
    if (byId("new-policy").value) wanted.policy = byId("new-policy").value;
    try {
      const made = await post("v1/sessions", wanted);
      dialog.close();
      if (!signal.aborted) location.hash = `#/s/${encodeURIComponent(made.id)}`;
    } catch (failure) {
      error.textContent = failure.message;
      error.hidden = false;
    }
  }, { signal: own.signal });
  dialog.showModal();
}

