// The tree of a session: what is sent now, and the branches that were left, each under the message it began from.

import { announce, el, plural, seqs, time } from "./dom.js";

/** Draws the `tree` of a session into `section`; `reveal` shows a message, `goBack` goes on from the end of a branch. */
export function drawBranches(section, tree, reveal, goBack) {
  section.hidden = tree.branches.length === 0;
  if (section.hidden) return;
  const items = [...tree.current, ...tree.branches.map((one) => ({ ...one, left: true }))]
    .sort((a, b) => a.start - b.start || Number(a.left ?? false) - Number(b.left ?? false));
  section.querySelector("ol").replaceChildren(...items.map((one) => {
    const go = el("button", { type: "button", class: "quiet", text: `${one.stop - one.start === 1 ? "Message" : "Messages"} ${seqs(one.start, one.stop)}` });
    go.addEventListener("click", () => reveal(one.start));
    if (!one.left) return el("li", { class: "on" }, go, el("span", { class: "mark", text: "on" }));
    const back = el("button", { type: "button", class: "quiet back", text: "Go back to it", "aria-label": `Go back to the branch of ${plural(one.messages, "message")} from ${one.start} on` });
    back.addEventListener("click", async () => {
      back.disabled = true;
      try {
        announce(`${plural(await goBack(one.stop - 1), "message")} back`);
      } catch (failure) {
        announce(failure.message);
        back.disabled = false;
      }
    });
    return el("li", { class: "left" }, go, el("span", { class: "note" }, "left", one.at ? " " : "", one.at ? time(one.at) : ""), back);
  }));
}
