// A stream of events that reconnects after a break, at growing intervals.

import { events, open } from "./api.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 30_000;
const SILENCE_MS = 45_000; // the server says something every 15 seconds, if only that it is there

/**
 * Follow the stream at `path` until the signal aborts.
 * `onState` is called with "live", "lost" and the seconds until the next try, or "gone" for a missing stream.
 */
export async function follow(path, { signal, onEvent, onState }) {
  let wait = FIRST_WAIT_MS;
  while (!signal.aborted) {
    const broken = new AbortController();
    let silence;
    const alive = () => {
      clearTimeout(silence);
      silence = setTimeout(() => broken.abort(), SILENCE_MS);
    };
    try {
      alive();
      const response = await open(path, { accept: "text/event-stream", signal: AbortSignal.any([signal, broken.signal]) });
      wait = FIRST_WAIT_MS;
      onState("live");
      for await (const [name, data] of events(response, alive)) deliver(onEvent, name, data);
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401 || error.status === 404) {
        onState("gone");
        return;
      }
    } finally {
      clearTimeout(silence);
    }
    if (signal.aborted) return;
    onState("lost", wait / 1000);
    await pause(wait, signal);
    wait = Math.min(LONGEST_WAIT_MS, wait * 2);
  }
}

// Ends early when the network returns, or the page becomes visible.
function pause(ms, signal) {
  return new Promise((resolve) => {
    const over = new AbortController();
    const end = () => {
      over.abort();
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(end, ms * (0.75 + Math.random() / 2)); // not all pages at the same moment
    const own = { signal: over.signal };
    signal.addEventListener("abort", end, own);
    window.addEventListener("online", end, own);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) end(); }, own);
  });
}

// A fault of the page is reported as one, and does not pass for a broken connection.
function deliver(onEvent, name, data) {
  try {
    onEvent(name, data);
  } catch (error) {
    reportError(error);
  }
}
