// The newest requests: the outcome of each, tokens given and sent, and times.

import { byId, compact, el, number, plural, reconcile } from "./dom.js";

const SHOWN = 40;
const OUTCOMES = {
  passed: "passed", folded: "folded", refused: "refused", open: "fault of ours", left: "client left", cut: "broken off",
  compacted: "compacted",
};
const BAD = new Set(["refused", "open", "cut"]);
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const exact = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/** 0.4 ms, 12 ms, 1.2 s, 95 s */
export function duration(ms) {
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
}

/** The list; the function it returns draws requests, the newest first. */
export function requestList() {
  const list = byId("requests");
  const more = byId("requests-more");
  let most = SHOWN;
  let all = [];

  function draw() {
    reconcile(list, all.slice(0, most), { keyOf: (one) => one.number, stampOf: (one) => one.at, make: row });
    byId("requests-empty").hidden = all.length > 0;
    more.hidden = all.length <= most;
    more.textContent = `Show all ${number(all.length)}`;
  }

  more.addEventListener("click", () => {
    most = Infinity;
    draw();
    more.blur();
  });
  return (requests) => {
    all = requests;
    draw();
  };
}

function row(one) {
  const at = new Date(one.at);
  const isBad = BAD.has(one.outcome);
  const what = one.title || `${one.method} ${one.path}`;
  const changed = one.given_tokens !== one.sent_tokens;
  const tokens = one.given_tokens === 0 ? "" : changed ? `${compact(one.given_tokens)} → ${compact(one.sent_tokens)}` : compact(one.given_tokens);
  const took = [one.first_byte_ms !== null && `first byte ${duration(one.first_byte_ms)}`, one.own_ms > 0 && `ours ${duration(one.own_ms)}`].filter(Boolean).join(", ");
  const events = [
    one.new_folds > 0 && `${plural(one.new_folds, "fold")} made`,
    one.recoveries > 0 && `sent again ${one.recoveries === 1 ? "once" : `${number(one.recoveries)} times`}`,
    one.failure && one.failure.replaceAll("_", " "),
    one.truncated && `cut silently: ${one.truncated}`,
    one.warning,
  ].filter(Boolean).join(" · ");
  const about = [one.model, one.output_tokens !== null && `${compact(one.output_tokens)} out`, one.dialect, one.streamed && "streamed"];
  return el("li", { data: { outcome: one.outcome } },
    el("time", { class: "at", datetime: one.at, title: exact.format(at), text: clock.format(at) }),
    el("span", { class: "line first" },
      el("span", { class: "outcome", data: { state: isBad ? "bad" : one.outcome }, text: OUTCOMES[one.outcome] ?? one.outcome }),
      el("span", { class: "status", data: { state: one.status >= 400 ? "bad" : "well" }, text: one.status || "no answer" }),
      el("span", { class: "end" }, tokens, tokens && el("span", { class: "unit", text: " tokens" }))),
    el("span", { class: "line" }, el("span", { class: "cut", dir: "auto", text: what })),
    el("span", { class: "line faint" },
      el("span", { class: "cut", dir: "auto", text: about.filter(Boolean).join(" · ") }),
      el("span", { class: "end", title: took }, duration(one.ms), took && el("span", { class: "unseen", text: ` (${took})` }))),
    events && el("span", { class: isBad || one.truncated ? "line events bad" : "line events", dir: "auto", text: events }));
}
