// One session: its figures and turns, the context beside the history, and the form for a message.

import { actions } from "./actions.js";
import { drawBranches } from "./branches.js";
import { get, post, sessionPath } from "./api.js";
import { announce, fromTemplate, paced } from "./dom.js";
import { detailsPanel } from "./details.js";
import { about, drawState, drawTotals, drawWindow } from "./figures.js";
import { historyPane } from "./history.js";
import { follow } from "./live.js";
import { ribbons } from "./ribbons.js";
import { isTyped } from "./keys.js";
import { contextPane } from "./context.js";
import { talk } from "./talk.js";
import { timeline } from "./timeline.js";

const CHANGING = new Set(["accepted", "behind", "fold_finished", "reply", "tool_finished", "turn_ended"]);
const NARROW = matchMedia("(max-width: 47.99rem)");

/** The view, as an element; it is alive until the signal aborts. */
export function sessionView(id, signal, connection) {
  const view = fromTemplate("session-view");
  const find = (selector) => view.querySelector(selector);
  const error = find(":scope > .error");
  let live = false;
  let session = null;

  const failed = (words) => {
    error.textContent = words;
    error.hidden = !words;
  };

  // --- parts ---------------------------------------------------------------------------------------------------------

  const reveal = (seq) => {
    chooseTab(view, "all");
    all.reveal(seq, { focus: true }).catch((failure) => failed(failure.message));
  };
  const turns = timeline(find(".timeline"), (turn) => {
    all.chooseTurn(turn);
    announce(`Messages ${turn.start} to ${turn.stop - 1}`);
    chooseTab(view, "all");
    all.reveal(turn.start, { focus: true, block: "start" }).catch((failure) => failed(failure.message));
  });
  const openRow = (row) => {
    const origin = document.activeElement;
    choose(view, shown.list, origin);
    if (row.start === null) details.standing(row, origin);
    else if (row.stop - row.start > 1) details.fold(row, origin);
    else details.message(row.start, origin);
    if (row.start !== null && !NARROW.matches) all.reveal(row.start).catch((failure) => failed(failure.message));
  };
  const shown = contextPane(find(".pane.shown"), {
    signal,
    open: openRow,
    across: (row) => reveal(row.start),
    beside: (seq) => { if (!NARROW.matches) all.reveal(seq).catch((failure) => failed(failure.message)); },
  });
  const all = historyPane(find(".pane.all"), id, {
    signal,
    open: (entry) => {
      choose(view, all.list, document.activeElement);
      details.message(entry.seq, document.activeElement);
      if (!NARROW.matches) shown.reveal(entry.seq);
    },
    across: (seq) => {
      chooseTab(view, "shown");
      shown.reveal(seq, { focus: true });
    },
    drawn: () => redraw(),
  });
  const redraw = ribbons(find(".ribbons"), shown.list, all.list, signal);
  const details = detailsPanel(find(".details"), {
    id, signal, reveal, turnOfFold: turns.turnOfFold,
    changed: () => refresh(),
    opened: () => { view.classList.add("with-details"); redraw(); },
    closed: () => {
      view.classList.remove("with-details");
      choose(view, null, null);
      redraw();
    },
    lost: () => find("h1").focus(),
  });
  const conversation = talk(find(".talk"), {
    id, signal, isLive: () => live, begun: (name, data) => hear(name, data), sent: () => soon(),
  });
  actions(view, { id, signal, changed: () => refresh(), failed });

  // --- reading -------------------------------------------------------------------------------------------------------

  function drawSession() {
    const title = session.title || "Untitled";
    document.title = `${title} · Foldline`;
    find("h1").textContent = title;
    find(".about").textContent = about(session);
    drawTotals(find(".totals"), session);
    drawRunning();
  }

  function drawRunning() {
    drawState(find(".state"), session);
    find("[data-action='cancel']").hidden = session.state !== "running";
  }

  async function goBack(tip) {
    const { back } = await post(sessionPath(id, "/return"), { tip });
    await read();
    return back;
  }

  async function read() {
    const [now, context, past, tree] = await Promise.all([
      get(sessionPath(id), signal), get(sessionPath(id, "/context"), signal), get(sessionPath(id, "/turns?limit=200"), signal),
      get(sessionPath(id, "/branches"), signal),
    ]);
    session = now;
    drawSession();
    drawWindow(find(".window"), session, context);
    turns.draw(past.turns, session);
    drawBranches(find(".branches"), tree, reveal, goBack);
    shown.draw(context);
    all.count(session.messages);
  }

  let reading = null;
  let again = false;

  // One at a time: the response of an earlier read could arrive after that of a later one.
  async function refresh() {
    if (reading) {
      again = true;
      return;
    }
    do {
      again = false;
      reading = Promise.all([read(), all.refresh()]);
      try {
        await reading;
      } catch (failure) {
        if (!signal.aborted && failure.status) failed(failure.message);
      }
    } while (again && !signal.aborted);
    reading = null;
    redraw();
  }

  // Events were missed while the stream was lost.
  async function catchUp() {
    try {
      const now = await get(sessionPath(id), signal);
      if (stand(now) !== stand(session)) refresh();
    } catch (failure) {
      if (!signal.aborted && failure.status) failed(failure.message);
    }
  }

  const soon = paced(250, () => { if (!signal.aborted) refresh(); });

  function hear(name, data) {
    if (session && (name === "accepted" || name === "turn_ended")) {
      session.state = name === "accepted" ? "running" : "idle";
      drawRunning();
    }
    if (CHANGING.has(name)) soon();
    if (name === "deleted") failed("This session was deleted.");
    if (name === "turn_ended" && data.figures) drawTotals(find(".totals"), { ...session, figures: data.figures });
  }

  function begin() {
    return follow(sessionPath(id, "/events"), {
      signal,
      onEvent: (name, data) => {
        conversation.hear(name, data);
        hear(name, data);
      },
      onState: (state, seconds) => {
        const back = state === "live" && session !== null;
        live = state === "live";
        connection(state, seconds);
        if (back) catchUp();
      },
    });
  }

  view.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && details.isOpen && !event.defaultPrevented) details.close();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "f" || isTyped(event)) return;
    chooseTab(view, "shown");
    shown.nextFold();
  }, { signal });
  tabs(view, signal, redraw);
  find("h1").textContent = "…";
  Promise.all([read(), all.start()]).then(() => {
    redraw();
    begin();
  }, (failure) => {
    if (signal.aborted) return;
    find("h1").textContent = failure.status === 404 ? "No such session" : "The session cannot be shown";
    view.classList.add("absent");
    failed(failure.message);
    find(".back").focus();
  });
  return view;
}

const stand = (session) => JSON.stringify([session.updated, session.messages, session.folds, session.tokens, session.state]);

// --- selection, and tabs where there is no room for two columns -----------------------------------------------------

function choose(view, list, origin) {
  for (const item of view.querySelectorAll(".list > .chosen")) item.classList.remove("chosen");
  if (list) origin?.closest("[data-key]")?.classList.add("chosen");
}

const TABS = { shown: ".pane.shown", all: ".pane.all", turns: ".figures" };

function chooseTab(view, name) {
  view.dataset.tab = name;
  for (const tab of view.querySelectorAll(".tabs [data-tab]")) {
    const on = tab.dataset.tab === name;
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
  }
}

function tabs(view, signal, redraw) {
  const bar = view.querySelector(".tabs");
  const all = [...bar.querySelectorAll("[data-tab]")];
  const roles = () => {
    bar.setAttribute("role", NARROW.matches ? "tablist" : "presentation");
    for (const tab of all) {
      const panel = view.querySelector(TABS[tab.dataset.tab]);
      tab.setAttribute("role", "tab");
      if (NARROW.matches) panel.setAttribute("role", "tabpanel");
      else panel.removeAttribute("role");
    }
    redraw();
  };
  NARROW.addEventListener("change", roles, { signal });
  for (const tab of all) tab.addEventListener("click", () => chooseTab(view, tab.dataset.tab));
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = all[(all.indexOf(event.target) + step + all.length) % all.length];
    chooseTab(view, next.dataset.tab);
    next.focus();
  });
  chooseTab(view, "shown");
  roles();
}

