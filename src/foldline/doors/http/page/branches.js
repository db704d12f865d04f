// The tree of a session: what is sent now, and the branches that were left, each under the message it began from.

import { el, seqs, time } from "./dom.js";

/** Draws `branches` of a session with `count` messages into `section`; `reveal` shows a message. */
export function drawBranches(section, branches, count, reveal) {
  section.hidden = branches.length === 0;
  if (section.hidden) return;
  const now = active(branches, count);
  const items = [
    ...now.map(([start, stop]) => ({ start, stop })),
    ...branches.map((one) => ({ ...one, left: true })),
  ].sort((a, b) => a.start - b.start || Number(a.left ?? false) - Number(b.left ?? false));
  section.querySelector("ol").replaceChildren(...items.map((one) => {
    const go = el("button", { type: "button", class: "quiet", text: `${one.stop - one.start === 1 ? "Message" : "Messages"} ${seqs(one.start, one.stop)}` });
    go.addEventListener("click", () => reveal(one.start));
    return el("li", { class: one.left ? "left" : "on" }, go,
      one.left ? el("span", { class: "note" }, "left", one.at ? " " : "", one.at ? time(one.at) : "") : el("span", { class: "mark", text: "on" }));
  }));
}

/** The ranges that no branch has taken away. */
function active(branches, count) {
  const out = [];
  let at = 0;
  const left = branches.map(({ start, stop }) => [start, stop]).sort((a, b) => a[0] - b[0]);
  for (const [start, stop] of left) {
    if (start > at) out.push([at, start]);
    at = Math.max(at, stop);
  }
  if (count > at) out.push([at, count]);
  return out;
}
