// Lists that are one stop of the Tab key: arrows, j and k, Home and End move inside.

const STEPS = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 };
const ALONG = { ArrowRight: 1, j: 1, ArrowLeft: -1, k: -1 };

const BY_HAND_MS = 500;

const target = (item) => item?.querySelector("button, a") ?? null;

/** Make the children of `list` reachable by arrows; each holds one button or link. `row`: the list runs sideways. */
export function roving(list, { row = false } = {}) {
  list.dataset.list = "";
  const steps = row ? ALONG : STEPS;
  list.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const here = event.target.closest("[data-key]");
    let next = null;
    if (event.key in steps) next = steps[event.key] > 0 ? here?.nextElementSibling : here?.previousElementSibling;
    else if (event.key === "Home") next = list.firstElementChild;
    else if (event.key === "End") next = list.lastElementChild;
    else return;
    event.preventDefault();
    focusItem(list, next);
  });
  list.addEventListener("focusin", (event) => settle(list, event.target.closest("[data-key]")));
}

/** Make exactly one item reachable by Tab: `item`, else the former one, else the first. Call it after changes. */
export function settle(list, item = null) {
  const now = list.querySelectorAll("[tabindex='0']");
  const kept = target(item) ?? now[0] ?? target(list.firstElementChild);
  for (const each of now) if (each !== kept) each.tabIndex = -1;
  if (kept) kept.tabIndex = 0;
}

/**
 * Keep a list scrolled to its end while it is there, as it grows or shrinks.
 * Returns `end()`, which goes to the end, `isAtEnd()`, and `leave()`, to be called before going elsewhere in it.
 */
export function following(list, signal) {
  let stuck = true;
  let last = { top: 0, height: 0 };
  let moved = -Infinity; // when somebody last scrolled by hand
  const go = () => { if (stuck) list.scrollTop = list.scrollHeight; };
  const end = () => {
    stuck = true;
    go();
    requestAnimationFrame(() => requestAnimationFrame(go)); // rows have their true heights once they are drawn
  };
  list.addEventListener("scroll", () => {
    const now = { top: list.scrollTop, height: list.scrollHeight };
    if (now.top + list.clientHeight >= now.height - 24) stuck = true;
    else if (performance.now() - moved < BY_HAND_MS || (now.top < last.top && now.height === last.height)) stuck = false;
    last = now; // rows that change move it too: then the height is another
  }, { passive: true });
  for (const name of ["wheel", "touchmove", "keydown"]) {
    list.addEventListener(name, () => { moved = performance.now(); }, { passive: true });
  }
  const watched = new ResizeObserver(go);
  watched.observe(list);
  signal.addEventListener("abort", () => watched.disconnect());
  return { end, isAtEnd: () => stuck, leave: () => { stuck = false; } };
}

export function focusItem(list, item, { scroll = "nearest" } = {}) {
  const found = target(item);
  if (!found) return;
  settle(list, item);
  found.focus({ preventScroll: true });
  item.scrollIntoView({ block: scroll, inline: "nearest" });
}
