// The frame: which view stands in the address, the token form, the colour scheme, the keys of the whole page.

import { onUnauthorized } from "./api.js";
import { byId } from "./dom.js";
import { isTyped } from "./keys.js";
import { sessionView } from "./session.js";
import { sessionsView } from "./sessions.js";

const main = byId("main");
let leave = null;

// --- views -----------------------------------------------------------------------------------------------------------

/** Show what the address names. Each view gets a signal that ends its streams and listeners when it is left. */
function show() {
  leave?.abort();
  leave = new AbortController();
  connection("none");
  const [, id] = /^#\/s\/([^/]+)$/.exec(location.hash) ?? [];
  const view = id ? sessionView(decodeURIComponent(id), leave.signal, connection) : sessionsView(leave.signal, connection);
  main.replaceChildren(view);
  view.querySelector("h1").focus({ preventScroll: true });
}

const CONNECTION = { none: "", live: "live", gone: "not connected" };

function connection(state, seconds = 0) {
  const shown = byId("connection");
  if (state === "lost") shown.textContent = seconds > 1 ? `disconnected, next try in ${Math.round(seconds)} s` : "disconnected";
  else shown.textContent = CONNECTION[state];
  shown.dataset.state = state;
}

window.addEventListener("hashchange", show);
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment is the address of the view
  main.focus();
});

// --- dialogues -------------------------------------------------------------------------------------------------------

onUnauthorized((again) => new Promise((resolve) => {
  const dialog = byId("token-dialog");
  const field = byId("token");
  byId("token-why").hidden = !again;
  field.value = "";
  dialog.returnValue = "";
  dialog.addEventListener("close", () => {
    resolve(dialog.returnValue === "give" ? field.value.trim() : null);
    field.value = "";
  }, { once: true });
  dialog.showModal();
  field.focus();
}));

for (const button of document.querySelectorAll("dialog [data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}
byId("keys-open").addEventListener("click", () => byId("keys-dialog").showModal());

// --- colour scheme ---------------------------------------------------------------------------------------------------

const SCHEMES = ["auto", "light", "dark"];

function scheme() {
  return document.documentElement.dataset.scheme ?? "auto";
}

function setScheme(name) {
  if (name === "auto") delete document.documentElement.dataset.scheme;
  else document.documentElement.dataset.scheme = name;
  byId("scheme").textContent = `Scheme: ${name}`;
  try {
    localStorage.setItem("foldline.scheme", name);
  } catch {
    // It holds for this page then.
  }
}

byId("scheme").addEventListener("click", () => setScheme(SCHEMES[(SCHEMES.indexOf(scheme()) + 1) % SCHEMES.length]));
byId("scheme").textContent = `Scheme: ${scheme()}`;

// --- keys ------------------------------------------------------------------------------------------------------------

document.addEventListener("keydown", (event) => {
  if (isTyped(event)) return;
  if (event.key === "?") byId("keys-dialog").showModal();
  else if (event.key === "/") (byId("filter") ?? byId("say"))?.focus();
  else if (event.key === "j" || event.key === "k") {
    // Not in a list yet: go into the first one. Lists themselves take the key before it comes here.
    const first = [...main.querySelectorAll("[data-list] [tabindex='0']")].find((row) => row.checkVisibility());
    first?.focus();
  } else return;
  event.preventDefault();
});

show();
