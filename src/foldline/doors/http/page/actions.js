// Compact, undo and cancel, with their results in words and figures.

import { post, sessionPath } from "./api.js";
import { announce, byId, el, number, percent, plural } from "./dom.js";

/** Wire the buttons of `view`. `changed` is called after a change of the context. */
export function actions(view, { id, signal, changed, failed }) {
  const button = (name) => view.querySelector(`[data-action="${name}"]`);

  button("undo").addEventListener("click", () => attempt(button("undo"), async () => {
    const { unfolded } = await post(sessionPath(id, "/undo"));
    announce(unfolded.length ? `${plural(unfolded.length, "fold")} taken back` : "Nothing to take back");
    changed();
  }));

  button("cancel").addEventListener("click", () => attempt(button("cancel"), async () => {
    const { cancelled } = await post(sessionPath(id, "/cancel"));
    announce(cancelled ? "The turn is being cancelled" : "No turn is running");
  }));

  button("compact").addEventListener("click", () => compact(id, signal, changed));

  async function attempt(pressed, work) {
    pressed.setAttribute("aria-disabled", "true"); // a disabled button would lose the keyboard
    failed("");
    try {
      await work();
    } catch (failure) {
      if (!signal.aborted) failed(failure.message);
    } finally {
      pressed.removeAttribute("aria-disabled");
    }
  }
}

function compact(id, signal, changed) {
  const dialog = byId("compact-dialog");
  const form = dialog.querySelector("form");
  const error = dialog.querySelector(".error");
  const result = dialog.querySelector(".result");
  const go = form.querySelector("button.main");
  form.reset();
  error.hidden = true;
  result.hidden = true;
  go.disabled = false;
  go.textContent = "Compact";
  const own = new AbortController();
  dialog.addEventListener("close", () => own.abort(), { once: true });
  signal.addEventListener("abort", () => dialog.close(), { once: true, signal: own.signal });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const instructions = byId("instructions").value.trim();
    error.hidden = true;
    go.disabled = true;
    go.textContent = "Compacting…";
    announce("Compacting");
    try {
      const done = await post(sessionPath(id, "/compact"), instructions ? { instructions } : {});
      if (signal.aborted) return;
      const words = `${number(size(done.before))} → ${number(size(done.after))} tokens`;
      result.replaceChildren(...answer(done));
      result.hidden = false;
      announce(`Compacted: ${words}`);
      result.focus();
      changed();
    } catch (failure) {
      if (signal.aborted) return;
      error.textContent = failure.message;
      error.hidden = false;
    }
    go.disabled = false;
    go.textContent = "Compact";
  }, { signal: own.signal });
  dialog.showModal();
}

const size = (figures) => figures.current_context_tokens;

function answer({ before, after, folds, summary }) {
  const row = (name, figures) => el("tr", {},
    el("th", { scope: "row", text: name }), el("td", { text: number(size(figures)) }),
    el("td", { text: percent(size(figures) / Math.max(1, figures.max_context_tokens)) }));
  return [
    el("table", {}, el("caption", { text: `Context, in tokens (${plural(folds.length, "fold")} made)` }),
      el("tbody", {}, row("Before", before), row("After", after))),
    summary && el("h3", { text: "Summary" }),
    summary && el("pre", { class: "text", tabindex: 0, dir: "auto", text: summary }),
  ].filter(Boolean);
}
