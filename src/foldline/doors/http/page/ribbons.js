// Bands from each fold to the messages that it stands for; the one under the pointer is highlighted.

import { svg } from "./dom.js";

const WIDTH = 100; // of the drawing's own units; the picture is stretched over the gap between the panes

/** Draw into `picture`, between the lists `shown` and `all`. Returns a function that redraws after a change of rows. */
export function ribbons(picture, shown, all, signal) {
  let active = null; // {fold} or {seq}
  let due = 0;

  const redraw = () => { due ||= requestAnimationFrame(draw); };

  function draw() {
    due = 0;
    if (signal.aborted || !picture.checkVisibility()) return;
    const frame = picture.getBoundingClientRect();
    const seen = shown.getBoundingClientRect();
    picture.setAttribute("viewBox", `0 0 ${WIDTH} ${frame.height}`);
    const bands = [];
    const boxes = new Map(); // fold -> first and last row that shows it
    for (const item of shown.children) {
      const fold = item.dataset.fold;
      if (fold === undefined) continue;
      const box = item.getBoundingClientRect();
      const known = boxes.get(fold);
      if (known) known.bottom = box.bottom;
      else boxes.set(fold, { top: box.top, bottom: box.bottom, start: Number(item.dataset.start), stop: Number(item.dataset.stop) });
    }
    for (const [fold, box] of boxes) {
      if (box.bottom < seen.top || box.top > seen.bottom) continue;
      bands.push(band(frame, seen, box, span(box.start, box.stop), { fold, on: active?.fold === fold }));
    }
    if (active?.seq !== undefined) {
      const left = [...shown.children].find((item) => covers(item, active.seq));
      if (left) bands.push(band(frame, seen, left.getBoundingClientRect(), span(active.seq, active.seq + 1), { on: true, plain: true }));
    }
    picture.replaceChildren(...bands);
  }

  /** Where the messages [start, stop) are on the other side; beyond what is loaded, its edge. */
  function span(start, stop) {
    const box = all.getBoundingClientRect();
    const first = Number(all.firstElementChild?.dataset.start ?? 0);
    const last = Number(all.lastElementChild?.dataset.start ?? 0);
    const edge = (seq) => {
      if (seq < first) return { top: box.top, bottom: box.top };
      if (seq > last) return { top: box.bottom, bottom: box.bottom };
      return all.querySelector(`[data-key="${seq}"]`)?.getBoundingClientRect() ?? { top: box.top, bottom: box.top };
    };
    return { top: edge(start).top, bottom: edge(stop - 1).bottom };
  }

  const covers = (item, seq) => Number(item.dataset.start) <= seq && seq < Number(item.dataset.stop);

  function point(target) {
    const same = target?.fold === active?.fold && target?.seq === active?.seq;
    if (same) return;
    active = target;
    mark();
    redraw();
  }

  function mark() {
    for (const list of [shown, all]) {
      for (const item of list.children) {
        const on = active !== null && (active.fold === undefined ? covers(item, active.seq) : item.dataset.fold === active.fold);
        item.classList.toggle("linked", on);
      }
    }
  }

  function pointed(item) {
    if (!item || item.dataset.start === undefined) return null;
    return item.dataset.fold === undefined ? { seq: Number(item.dataset.start) } : { fold: item.dataset.fold };
  }

  for (const list of [shown, all]) {
    const own = { signal };
    list.addEventListener("pointerover", (event) => point(pointed(event.target.closest("[data-key]"))), own);
    list.addEventListener("pointerleave", () => point(pointed(document.activeElement?.closest?.("[data-key]"))), own);
    list.addEventListener("focusin", (event) => point(pointed(event.target.closest("[data-key]"))), own);
    list.addEventListener("scroll", redraw, { signal, passive: true });
  }
  const watched = new ResizeObserver(redraw);
  watched.observe(picture);
  watched.observe(shown);
  signal.addEventListener("abort", () => watched.disconnect());
  return () => {
    mark(); // rows may be new
    redraw();
  };
}

function band(frame, seen, left, right, { fold, on, plain = false }) {
  const clip = (y) => Math.max(seen.top, Math.min(seen.bottom, y)) - frame.top;
  const [a, b] = [clip(left.top) + 1, clip(left.bottom) - 1];
  const [c, d] = [clip(right.top), clip(right.bottom)];
  const half = WIDTH / 2;
  const path = `M0 ${a}C${half} ${a} ${half} ${c} ${WIDTH} ${c}V${Math.max(d, c + 2)}C${half} ${d} ${half} ${b} 0 ${Math.max(b, a + 2)}Z`;
  const made = svg("path", { d: path, class: `${plain ? "plain" : "band"}${on ? " on" : ""}` });
  if (fold !== undefined) made.dataset.fold = fold;
  return made;
}
