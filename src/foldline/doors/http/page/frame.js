// The frame of both pages: the state of the connection, the token form, dialogues, the colour scheme.

import { onUnauthorized } from "./api.js";
import { byId } from "./dom.js";

const CONNECTION = { none: "", live: "live", gone: "not connected" };

/** Show whether the page is live. */
export function connection(state, seconds = 0) {
  const shown = byId("connection");
  if (state === "lost") shown.textContent = seconds > 1 ? `disconnected, next try in ${Math.round(seconds)} s` : "disconnected";
  else shown.textContent = CONNECTION[state];
  shown.dataset.state = state;
}

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
    // Without storage the choice holds for this page only.
  }
}

byId("scheme").addEventListener("click", () => setScheme(SCHEMES[(SCHEMES.indexOf(scheme()) + 1) % SCHEMES.length]));
byId("scheme").textContent = `Scheme: ${scheme()}`;
