// The view in the address, and the keys of the whole page.

import { byId } from "./dom.js";
import { connection } from "./frame.js";
import { isTyped } from "./keys.js";
import { sessionView } from "./session.js";
import { sessionsView } from "./sessions.js";

const main = byId("main");
let leave = null;

// --- views -----------------------------------------------------------------------------------------------------------

/** Show the view of the address. Each view gets a signal that ends its streams and listeners when the person leaves. */
function show() {
  leave?.abort();
  leave = new AbortController();
  connection("none");
  const [, id] = /^#\/s\/([^/]+)$/.exec(location.hash) ?? [];
  const view = id ? sessionView(decodeURIComponent(id), leave.signal, connection) : sessionsView(leave.signal, connection);
  main.replaceChildren(view);
  view.querySelector("h1").focus({ preventScroll: true });
}

window.addEventListener("hashchange", show);
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment is the address of the view
  main.focus();
});

// --- keys ------------------------------------------------------------------------------------------------------------

document.addEventListener("keydown", (event) => {
  if (isTyped(event)) return;
  if (event.key === "?") byId("keys-dialog").showModal();
  else if (event.key === "/") (byId("filter") ?? byId("say"))?.focus();
  else if (event.key === "j" || event.key === "k") {
    // Outside of lists: go to the first one. Lists handle the key before it arrives here.
    const first = [...main.querySelectorAll("[data-list] [tabindex='0']")].find((row) => row.checkVisibility());
    first?.focus();
  } else return;
  event.preventDefault();
});

show();
