// The page of the proxy: it follows the events of the server, and redraws after each change.

import "./token.js";
import { get } from "./api.js";
import { conversationList } from "./conversations.js";
import { byId, time } from "./dom.js";
import { connection } from "./frame.js";
import { isTyped } from "./keys.js";
import { follow } from "./live.js";
import { requestList } from "./requests.js";
import { drawAbout, drawTotals } from "./totals.js";

const MOST_REQUESTS = 200; // as many as the proxy keeps
const MOST_CONVERSATIONS = 1000;
const AGO_MS = 20_000;

const conversations = conversationList();
const drawRequests = requestList();
let state = null;

function begin(first) {
  state = first;
  drawAbout(state, (at) => time(at, { inFull: true }));
  draw();
}

function draw() {
  drawTotals(state.totals, state.mode);
  conversations.draw(state.conversations, state.mode);
  drawRequests(state.requests);
}

// `update` is newer: its items come first, and replace the known ones with the same key.
function merged(update, known, keyOf, most) {
  const keys = new Set(update.map(keyOf));
  return [...update, ...known.filter((one) => !keys.has(keyOf(one)))].slice(0, most);
}

function change(update) {
  state.totals = update.totals;
  const seen = [...update.conversations].sort((a, b) => b.at.localeCompare(a.at));
  state.conversations = merged(seen, state.conversations, (one) => one.id, MOST_CONVERSATIONS);
  state.requests = merged(update.requests, state.requests, (one) => one.number, MOST_REQUESTS);
  draw();
}

const heard = {
  state: begin,
  change: (update) => { if (state) change(update); },
  behind: () => get("foldline/state").then(begin, reportError), // some update was left out: this page is too slow
};

follow("foldline/events", {
  signal: new AbortController().signal,
  onEvent: (name, data) => heard[name]?.(data),
  onState: connection,
});

setInterval(() => {
  for (const one of document.querySelectorAll("#conversations .when time")) one.replaceWith(time(one.dateTime));
}, AGO_MS);

byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target === byId("filter")) byId("filter").blur();
  if (isTyped(event)) return;
  if (event.key === "?") byId("keys-dialog").showModal();
  else if (event.key === "/") byId("filter").focus();
  else if (event.key === "j" || event.key === "k") document.querySelector("#conversations [tabindex='0']")?.focus();
  else if (event.key !== "Escape" || !conversations.closeAll()) return;
  event.preventDefault();
});
