// The form for a message, and its turn as it happens, whichever client began it.

import { events, get, open, sessionPath } from "./api.js";
import { announce, el, number, plural } from "./dom.js";

const ENDS = {
  done: "", cancelled: "cancelled", interrupted: "interrupted", paused: "paused", failed: "failed", length: "cut off at its length",
  iterations: "stopped after many steps", refusal: "refused by the model", does_not_fit: "does not fit the window",
};
const CUT = 400;

/**
 * The conversation in `section`. `isLive` tells whether the session's own stream is connected; `begun` is called
 * with the events that replace it, `sent` after a message is sent.
 */
export function talk(section, { id, signal, isLive, begun, sent }) {
  const form = section.querySelector(".say");
  const field = form.querySelector("textarea");
  const now = section.querySelector(".now");
  const steps = now.querySelector(".steps");
  let writing = null; // the step that grows while text comes

  const step = (kind, label, words = "") => {
    const follows = steps.scrollTop + steps.clientHeight >= steps.scrollHeight - 24;
    const body = el("span", { class: "words", dir: "auto", text: words });
    steps.append(el("li", { data: { kind } }, el("span", { class: "label", text: label }), body));
    now.hidden = false;
    if (follows) steps.scrollTop = steps.scrollHeight;
    return body;
  };

  const grow = (kind, label, piece) => {
    const follows = steps.scrollTop + steps.clientHeight >= steps.scrollHeight - 24;
    if (writing?.kind !== kind) writing = { kind, body: step(kind, label) };
    writing.body.append(piece);
    if (follows) steps.scrollTop = steps.scrollHeight;
  };

  const heard = {
    accepted(data) {
      steps.replaceChildren();
      writing = null;
      recorded(data.seq, step("user", "user"));
      announce("The turn begins");
    },
    text: (data) => grow("assistant", "assistant", data.text),
    reasoning: (data) => grow("reasoning", "thinking", data.text),
    tool_started(data) {
      writing = null;
      step("call", "calls", `${data.tool} ${cut(data.arguments)}`);
    },
    tool_finished(data) {
      const failed = data.is_error ? "error, " : "";
      step("result", "result", `${data.tool}: ${failed}${number(data.tokens)} tokens, ${data.seconds.toFixed(1)} s`);
    },
    fold_finished(data) {
      writing = null;
      if (data.folds.length === 0 && !data.error) return;
      const sizes = `${number(data.tokens_before)} → ${number(data.tokens)} tokens, ${plural(data.folds.length, "fold")}`;
      const by = [...new Set(data.folds.map((fold) => fold.reducer))].join(", ");
      step("fold", "folded", [sizes, by, data.error].filter(Boolean).join(" · "));
    },
    retrying: (data) => step("notice", "waits", `${data.reason}; again in ${Math.round(data.wait_seconds)} s`),
    notice: (data) => step("notice", "notice", data.text),
    reply() {
      writing = null;
    },
    turn_ended(data) {
      writing = null;
      const last = [...steps.querySelectorAll("[data-kind='assistant'] .words")].at(-1);
      if (data.text && last?.textContent !== data.text) {
        if (last) last.textContent = data.text; // pieces were missed while the stream was lost
        else step("assistant", "assistant", data.text);
      }
      const how = [ENDS[data.reason] ?? data.reason, data.message].filter(Boolean).join(": ");
      if (how) step("notice", "ended", how);
      announce(how ? `The turn ended: ${how}` : `Answer: ${cut(data.text ?? "")}`);
    },
  };

  // From any client: by now the message is in the log.
  async function recorded(seq, body) {
    try {
      body.textContent = (await get(sessionPath(id, `/history/${seq}`), signal)).text;
    } catch {
      body.textContent = `message ${seq}`;
    }
  }

  function hear(name, data) {
    heard[name]?.(data);
  }

  // The session's own stream reports every turn in order, this one too. The events of the request replace it while it
  // is lost, and report errors. They are read to their end even in another view: a client that stops reading has left,
  // and the server would pause its turn.
  async function say(words) {
    let accepted = false;
    try {
      const response = await open(sessionPath(id, "/messages"), {
        method: "POST", body: { text: words, stream: true }, accept: "text/event-stream", key: newKey(),
      });
      for await (const [name, data] of events(response)) {
        accepted ||= name === "accepted";
        if (name === "error") throw new Error(data.detail ?? data.title);
        if (!isLive() && !signal.aborted) {
          hear(name, data);
          begun(name, data);
        }
      }
    } catch (failure) {
      failed(failure, words, accepted);
    }
  }

  function failed(failure, words, accepted) {
    if (signal.aborted) return;
    const what = accepted ? "broken off" : "not sent";
    step("notice", what, failure.message);
    announce(`${what}: ${failure.message}`);
    if (!accepted) field.value ||= words; // nothing is lost that was typed
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const words = field.value.trim();
    if (!words) return;
    field.value = "";
    fit();
    say(words);
    sent();
  });
  const fit = () => {
    field.style.blockSize = "auto";
    field.style.blockSize = `${Math.min(field.scrollHeight + 2, 160)}px`;
  };
  field.addEventListener("input", fit);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    if (event.key === "Escape") field.blur();
  });
  now.querySelector(".close").addEventListener("click", () => {
    now.hidden = true;
    field.focus();
  });
  return { hear };
}

const cut = (words) => (words.length > CUT ? `${words.slice(0, CUT)}…` : words);

// If the browser repeats a request, the server still runs one turn.
function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
