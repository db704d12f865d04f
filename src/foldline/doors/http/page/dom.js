// Elements, and figures for people. Texts become text nodes, never markup: a model may write <script>.

/** An element. `options`: class, text, data (object), on (object of listeners); other names are attributes. */
export function el(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "text") element.textContent = value;
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

/** A copy of a template's only element. */
export function fromTemplate(id) {
  return byId(id).content.firstElementChild.cloneNode(true);
}

const whole = new Intl.NumberFormat("en");
export const number = (value) => whole.format(Math.round(value ?? 0));
export const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
export const percent = (share) => `${(share * 100).toFixed(1)} %`;

/** US dollars; small sums are never rounded to zero. */
export function dollars(usd) {
  if (usd > 0 && usd < 0.01) return "< $0.01";
  if (usd < 0) return `−${dollars(Math.max(-usd, 0.01))}`;
  return `$${usd.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

/** What the next request costs as input: read anew where the provider's cache has expired, else from it. */
export function goingOn(coldUsd, warmUsd, isCold) {
  const [now, other, when] = isCold ? [coldUsd, warmUsd, "while its cache was warm"] : [warmUsd, coldUsd, "once the cache has expired"];
  return coldUsd > warmUsd ? `≈ ${dollars(now)} (${dollars(other)} ${when})` : `≈ ${dollars(now)}`;
}

/** 950, 16k, 12.3k, 3.98M */
export function compact(tokens) {
  for (const [size, unit] of [[1e6, "M"], [1e3, "k"]]) {
    const scaled = tokens / size;
    if (scaled >= 0.9995) return scaled.toFixed(scaled < 99.95 ? 1 : 0).replace(/\.0$/, "") + unit;
  }
  return String(Math.round(tokens));
}

/** The numbers of messages [start, stop): "4" or "4–9". */
export const seqs = (start, stop) => (stop - start <= 1 ? `${start}` : `${start}–${stop - 1}`);

const AGO = [[60, "second"], [60, "minute"], [24, "hour"], [30, "day"], [12, "month"], [Infinity, "year"]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
const exact = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/** A time element: "5 min. ago", with the exact time to point at. */
export function time(iso, { inFull = false } = {}) {
  const date = new Date(iso || NaN);
  if (Number.isNaN(date.getTime())) return el("span", { text: "" });
  let count = (date.getTime() - Date.now()) / 1000;
  let words = "";
  for (const [size, unit] of AGO) {
    if (Math.abs(count) < size) {
      words = unit === "second" ? "just now" : relative.format(Math.round(count), unit);
      break;
    }
    count /= size;
  }
  return el("time", { datetime: iso, title: exact.format(date), text: inFull ? exact.format(date) : words });
}

/** "calm" under 70 % of the window, "high" from 70, "full" from 90: the bounds of the line in the terminal. */
export const level = (share) => (share >= 0.9 ? "full" : share >= 0.7 ? "high" : "calm");

/** The fill of a window as a bar, with a name for screen readers. */
export function meter(tokens, window_tokens) {
  const share = window_tokens > 0 ? tokens / window_tokens : 0;
  const fill = el("span", { class: "fill" });
  fill.style.inlineSize = `${Math.min(100, share * 100)}%`;
  return el("span", {
    class: "meter", role: "meter", "aria-label": "Context", "aria-valuemin": 0, "aria-valuemax": window_tokens,
    "aria-valuenow": Math.min(tokens, window_tokens),
    "aria-valuetext": `${number(tokens)} of ${number(window_tokens)} tokens, ${percent(share)}`,
    data: { level: level(share) },
  }, fill);
}

/**
 * Make the children of `list` those of `items`, keeping the elements of items that have not changed.
 * `keyOf` tells items apart, `stampOf` whether one has changed.
 */
export function reconcile(list, items, { keyOf, stampOf, make }) {
  const old = new Map([...list.children].map((child) => [child.dataset.key, child]));
  const focused = list.contains(document.activeElement) ? document.activeElement.closest("[data-key]")?.dataset.key : null;
  let place = list.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    const stamp = stampOf(item);
    let child = old.get(key);
    old.delete(key);
    if (!child || child.dataset.stamp !== stamp) {
      const fresh = make(item);
      fresh.dataset.key = key;
      fresh.dataset.stamp = stamp;
      if (child) {
        if (place === child) place = fresh;
        child.replaceWith(fresh);
      }
      child = fresh;
    }
    if (child === place) place = place.nextElementSibling;
    else list.insertBefore(child, place);
  }
  for (const child of old.values()) child.remove();
  if (focused !== null && !list.contains(document.activeElement)) { // it was in a row that was rebuilt or moved
    const row = [...list.children].find((child) => child.dataset.key === focused);
    row?.querySelector("button, a")?.focus({ preventScroll: true });
  }
}

/** `call`, at most once in `ms`; the last call is never dropped. */
export function paced(ms, call) {
  let timer = null;
  return () => {
    timer ??= setTimeout(() => {
      timer = null;
      call();
    }, ms);
  };
}

/** Announce a text to screen readers. */
export function announce(words) {
  const region = byId("announcer");
  region.textContent = region.textContent === words ? `${words}\u00a0` : words;
}
