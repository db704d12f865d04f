// The pane of the context: system text and tools, then one row per message of the next request.

import { number, plural, reconcile } from "./dom.js";
import { focusItem, following, roving, settle } from "./lists.js";
import { messageRow, who } from "./rows.js";

/**
 * The pane in `section`; `open` is called with a chosen row, `across` with the row at which → was pressed,
 * `beside` with the first message of a fold that was reached.
 */
export function contextPane(section, { signal, open, across, beside }) {
  const list = section.querySelector(".list");
  const sums = section.querySelector(".pane-head p");
  const next = section.querySelector(".next-fold");
  let rows = [];
  roving(list);
  const place = following(list, signal);

  const rowOf = (item) => rows.find((row) => row.key === item?.dataset.key);
  list.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowRight") return;
    const row = rowOf(event.target.closest("[data-key]"));
    if (row?.start === null || row === undefined) return;
    event.preventDefault();
    across(row);
  });

  const pane = {
    list,
    draw(context) {
      const atEnd = place.isAtEnd();
      rows = [...standing(context), ...messages(context)];
      const largest = Math.max(...rows.map((row) => row.tokens), 1);
      reconcile(list, rows, {
        keyOf: (row) => row.key,
        stampOf: (row) => JSON.stringify([row.state, row.tokens, row.text.length, row.who, largest]),
        make: (row) => messageRow({ ...row, largest }, () => open(rowOf(list.querySelector(`[data-key="${row.key}"]`)) ?? row)),
      });
      settle(list);
      const folds = new Set(rows.filter((row) => row.fold !== null).map((row) => row.fold)).size;
      sums.textContent = `${plural(context.rows.length, "message")}, ${number(context.tokens)} tokens`
        + (folds ? `, ${plural(folds, "fold")}` : "");
      next.hidden = folds === 0;
      if (atEnd) place.end();
    },
    /** Go to the next row of a fold: after the focused row, or from the top. */
    nextFold() {
      const items = [...list.querySelectorAll("[data-fold]")];
      const here = list.contains(document.activeElement) ? document.activeElement : null;
      const after = items.find((item) => here && here.compareDocumentPosition(item) === Node.DOCUMENT_POSITION_FOLLOWING);
      const item = after ?? items[0];
      if (!item) return;
      place.leave();
      focusItem(list, item, { scroll: "center" });
      beside(Number(item.dataset.start));
    },
    /** Scroll to the row of a message, or to the fold in its place. */
    reveal(seq, { focus = false } = {}) {
      const item = [...list.children].find((one) => Number(one.dataset.start) <= seq && seq < Number(one.dataset.stop));
      place.leave();
      if (focus) focusItem(list, item);
      else item?.scrollIntoView({ block: "nearest" });
    },
  };
  next.addEventListener("click", () => pane.nextFold());
  return pane;
}

function standing(context) {
  const out = [];
  const add = (key, text, tokens) => out.push({ key, start: null, stop: null, who: key, state: "shown", fold: null, tokens, text });
  if (context.system) add("system", asText(context.system), context.parts?.system ?? 0);
  const sizes = [...(context.tool_sizes ?? [])].sort((one, other) => other.tokens - one.tokens);
  const named = sizes.length ? sizes.map((one) => `${one.name} ${one.tokens}`) : (context.tools ?? []).map(toolName);
  if (context.tools?.length) add("tools", named.join(", "), context.parts?.tools ?? 0);
  const rules = context.rules ?? [];
  if (rules.length) {
    add("rules", rules.map((rule) => `${rule.source} (message ${rule.seq}, ${rule.tokens} tokens):\n${rule.text}`).join("\n\n"),
      rules.reduce((sum, rule) => sum + rule.tokens, 0));
  }
  return out.map((row) => ({ ...row, wire: row.key === "tools" ? JSON.stringify(context.tools, null, 2) : row.text }));
}

function messages(context) {
  const seen = new Map();
  return context.rows.map((row) => {
    const place = `${row.start}-${row.fold ?? ""}`;
    const nth = seen.get(place) ?? 0;
    seen.set(place, nth + 1);
    return { ...row, fold: row.fold ?? null, who: who(row), key: nth ? `${place}-${nth}` : place };
  });
}

function asText(value) {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map((part) => part?.text ?? part?.content ?? JSON.stringify(part)).join("\n");
  return JSON.stringify(value, null, 2);
}

const toolName = (tool) => tool.function?.name ?? tool.name ?? tool.type ?? "tool";

