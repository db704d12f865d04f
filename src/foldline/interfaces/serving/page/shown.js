// The pane of what the model sees: what goes with every request, then one row per message that would be sent.

import { number, plural, reconcile } from "./dom.js";
import { focusItem, roving, settle } from "./lists.js";
import { messageRow, who } from "./rows.js";

/** The pane in `section`; `open` is called with the row that is chosen, `across` with one that → was pressed on. */
export function shownPane(section, { open, across }) {
  const list = section.querySelector(".list");
  const sums = section.querySelector(".pane-head p");
  let rows = [];
  let last = null;
  roving(list);

  const rowOf = (item) => rows.find((row) => row.key === item?.dataset.key);
  list.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowRight") return;
    const row = rowOf(event.target.closest("[data-key]"));
    if (row?.start === null || row === undefined) return;
    event.preventDefault();
    across(row);
  });

  return {
    list,
    draw(context) {
      const atEnd = list.scrollTop + list.clientHeight >= list.scrollHeight - 24;
      const was = last;
      rows = [...standing(context), ...messages(context)];
      last = rows.at(-1)?.key ?? null;
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
      if (was !== last && (atEnd || was === null)) list.scrollTop = list.scrollHeight;
    },
    /** The row in which a message is, or what stands in its place. */
    focus(seq) {
      focusItem(list, this.itemOf(seq));
    },
    itemOf(seq) {
      return [...list.children].find((item) => Number(item.dataset.start) <= seq && seq < Number(item.dataset.stop));
    },
  };
}

function standing(context) {
  const out = [];
  const add = (key, text, tokens) => out.push({ key, start: null, stop: null, who: key, state: "shown", fold: null, tokens, text });
  if (context.system) add("system", asText(context.system), context.parts?.system ?? 0);
  if (context.tools?.length) add("tools", context.tools.map(toolName).join(", "), context.parts?.tools ?? 0);
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

