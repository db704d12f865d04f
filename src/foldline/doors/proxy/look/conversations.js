// The conversations as rows: tokens given and sent, the fill of the window; opened, the reasons of the folds.

import { get } from "./api.js";
import { byId, compact, dollars, el, goingOn, meter, number, percent, plural, reconcile, seqs, time } from "./dom.js";
import { roving, settle } from "./lists.js";
import { savedWord, share } from "./totals.js";

const SHOWN = 50;

/** The list. `draw(conversations, mode)` shows them, newest first; `closeAll()` closes the open ones. */
export function conversationList() {
  const list = byId("conversations");
  const more = byId("conversations-more");
  const filter = byId("filter");
  const open = new Map(); // id -> folds, rules and tools, null until they arrive, or an error text
  let all = [];
  let mode = "normal";
  let most = SHOWN;

  function draw() {
    const wanted = filter.value.trim().toLowerCase();
    const found = wanted ? all.filter((one) => `${one.title}\n${one.model}\n${one.id}`.toLowerCase().includes(wanted)) : all;
    const shown = found.slice(0, most);
    reconcile(list, shown, {
      keyOf: (one) => one.id,
      stampOf: (one) => JSON.stringify([one, mode, open.has(one.id), open.get(one.id)]),
      make: (one) => row(one, mode, open, toggle),
    });
    settle(list);
    byId("conversations-count").textContent = wanted ? `${number(found.length)} of ${number(all.length)}` : all.length ? number(all.length) : "";
    more.hidden = shown.length === found.length;
    more.textContent = `Show all ${number(found.length)}`;
    const empty = byId("conversations-empty");
    empty.hidden = shown.length > 0;
    empty.replaceChildren(...(wanted ? ["No conversation matches."] : howToBegin()));
  }

  function toggle(id) {
    if (open.delete(id)) draw();
    else load(id);
  }

  async function load(id) {
    open.set(id, open.get(id) ?? null);
    draw();
    let found;
    try {
      found = await get(`foldline/folds?session=${encodeURIComponent(id)}`);
    } catch (failure) {
      found = failure.message;
    }
    if (!open.has(id)) return; // closed meanwhile
    open.set(id, found);
    draw();
  }

  roving(list);
  filter.addEventListener("input", draw);
  filter.closest("form").addEventListener("submit", (event) => {
    event.preventDefault();
    list.querySelector("button")?.focus();
  });
  more.addEventListener("click", () => {
    const last = list.lastElementChild;
    most = Infinity;
    draw();
    (last?.nextElementSibling ?? list).querySelector("button")?.focus();
  });

  return {
    draw(conversations, newMode) {
      const stamp = (one) => `${one.folds_made} ${one.rules_tokens} ${one.tools_tokens}`;
      const known = new Map(all.map((one) => [one.id, stamp(one)]));
      all = conversations;
      mode = newMode;
      draw();
      for (const one of all) if (open.has(one.id) && known.get(one.id) !== stamp(one)) load(one.id);
    },
    /** Close the open rows; return whether there were any. */
    closeAll() {
      if (open.size === 0) return false;
      open.clear();
      draw();
      return true;
    },
  };
}

function row(one, mode, open, toggle) {
  const isOpen = open.has(one.id);
  const part = share(one.saved_tokens, one.given_tokens);
  const fill = one.window_tokens > 0 ? one.tokens / one.window_tokens : 0;
  const title = one.title || "Untitled";
  const trouble = one.truncated ? "cut silently upstream" : one.warning ? "warning" : one.refused > 0 ? `${number(one.refused)} refused` : "";
  const name = [title, one.model, plural(one.requests, "request"),
    `${number(one.given_tokens)} tokens given, ${number(one.sent_tokens)} sent, ${percent(part)} ${savedWord(mode)}`,
    plural(one.folds, "fold"), one.window_tokens > 0 && `window ${percent(fill)} full`, trouble].filter(Boolean).join(", ");
  const panel = `folds-of-${one.id}`;
  return el("li", { data: { open: String(isOpen) } },
    el("button", {
      type: "button", class: "row", tabindex: -1, "aria-expanded": String(isOpen), "aria-controls": isOpen ? panel : null,
      "aria-label": name, on: { click: () => toggle(one.id) },
    },
    el("span", { class: "what" },
      el("span", { class: one.title ? "name" : "name untitled", dir: "auto", text: title }),
      el("span", { class: "about", dir: "auto" }, el("span", { text: one.model }), trouble && el("span", { class: "mark bad", text: trouble }))),
    el("span", { class: "flow" },
      el("span", { class: "line" }, `${compact(one.given_tokens)} → ${compact(one.sent_tokens)}`, el("span", { class: "noun unit", text: " tokens" })),
      el("span", { class: part > 0 ? "line spared" : "line none", text: `${percent(part)} ${savedWord(mode)}` })),
    el("span", { class: "count" }, number(one.requests), el("span", { class: "noun", text: one.requests === 1 ? " request" : " requests" })),
    el("span", { class: "count" }, number(one.folds), el("span", { class: "noun", text: one.folds === 1 ? " fold" : " folds" })),
    el("span", { class: "fullness" },
      one.window_tokens > 0 && meter(one.tokens, one.window_tokens),
      one.window_tokens > 0 && el("span", { class: "figures-line" },
        el("span", { text: `${compact(one.tokens)} / ${compact(one.window_tokens)}` }), el("span", { class: "share", text: percent(fill) }))),
    el("span", { class: "when" }, time(one.at))),
    isOpen && el("div", { class: "opened", id: panel }, ...opened(one, open.get(one.id))));
}

function opened(one, found) {
  const lines = found !== null && typeof found === "object" ? found.folds : found;
  const fact = (term, words) => el("div", {}, el("dt", { text: term }), el("dd", { dir: "auto", text: words }));
  const facts = [
    fact("Reported by the upstream", `${number(one.input_tokens)} in (${number(one.cached_tokens)} cached), ${number(one.output_tokens)} out`),
    one.summary_tokens > 0 && fact("Read and written for summaries", `${number(one.summary_tokens)} tokens`),
    one.saved_usd !== null && one.saved_usd > 0 && fact("Input not paid for", `≈ ${dollars(one.saved_usd)}`),
    one.resume_usd !== null && fact("Input of the next request", goingOn(one.resume_usd, one.resume_warm_usd, isCold(one))),
    one.recoveries > 0 && fact("Recovered", number(one.recoveries)),
    one.failed + one.cut > 0 && fact("Failed upstream", number(one.failed + one.cut)),
    one.refused > 0 && fact("Refused", number(one.refused)),
    one.faults > 0 && fact("Our faults", number(one.faults)),
    one.truncated && fact("Cut silently", one.truncated),
    one.warning && fact("Warning", one.warning),
    one.tools > 0 && fact("Tools", `${plural(one.tools, "tool")}, ${number(one.tools_tokens)} tokens`),
    one.rules > 0 && fact("Rules that stay", `${plural(one.rules, "rule")}, ${number(one.rules_tokens)} tokens`),
    fact("Dialect", one.dialect), fact("Id", one.id),
  ];
  return [el("dl", { class: "facts" }, ...facts), el("h3", { text: "Folds, the newest first" }), foldLines(lines, one.folds_made),
    ...(found !== null && typeof found === "object" ? [...ruleLines(found.rules), ...toolLines(found.tools, found.servers)] : [])];
}

/** Whether the provider's cache has expired since the latest request; 0 seconds: it never does. */
const isCold = (one) => one.cache_seconds > 0 && Date.now() - Date.parse(one.at) >= one.cache_seconds * 1000;

function ruleLines(rules) {
  if (rules.length === 0) return [];
  return [el("h3", { text: "Rules that stay, the newest first" }),
    el("ol", { class: "folds", "aria-label": "Rules" }, ...rules.map((rule) => el("li", {},
      el("span", { class: "fold-head" }, el("b", { dir: "auto", text: rule.source }), el("span", { class: "fold-size", text: `${number(rule.tokens)} tokens` })),
      el("span", { class: "fold-why", dir: "auto", text: rule.text }))))];
}

function toolLines(tools, servers) {
  if (tools.length === 0) return [];
  const line = (name, about, tokens) => el("li", {},
    el("span", { class: "fold-head" }, el("b", { dir: "auto", text: name }), about && el("span", { class: "note", dir: "auto", text: about }),
      el("span", { class: "fold-size", text: `${number(tokens)} tokens` })));
  const named = servers.filter((one) => one.server);
  return [el("h3", { text: "Tools, the largest first" }),
    el("ol", { class: "folds", "aria-label": "Tools" },
      ...named.map((one) => line(one.server, plural(one.tools, "tool"), one.tokens)), ...tools.map((one) => line(one.name, one.server, one.tokens)))];
}

function foldLines(lines, made) {
  if (lines === null) return el("p", { class: "note", text: "…" });
  if (typeof lines === "string") return el("p", { class: "error", role: "alert", text: lines });
  if (lines.length === 0) return el("p", { class: "note", text: "None yet: every request fitted as it came." });
  return el("div", {},
    el("ol", { class: "folds", "aria-label": "Folds" }, ...lines.map((line) => el("li", {},
      el("span", { class: "fold-head" },
        el("span", {}, el("b", { text: line.reducer }), ` · ${line.stop - line.start === 1 ? "message" : "messages"} ${seqs(line.start, line.stop)}`),
        el("span", { class: "note" }, time(line.at, { inFull: true })),
        el("span", { class: "fold-size", text: `${number(line.before_tokens)} → ${number(line.tokens)} tokens` })),
      el("span", { class: "fold-why", dir: "auto", text: line.reason })))),
    made > lines.length && el("p", { class: "note", text: `${plural(made - lines.length, "older fold")} not shown` }));
}

function howToBegin() {
  const code = (words) => el("code", { text: words });
  return ["No conversations yet. Set a client's base URL to ", code(`${location.origin}/v1`), " (OpenAI) or ", code(location.origin), " (Anthropic)."];
}
