// The keys that may be commands.

/** Whether a key is typed into a field, belongs to a dialogue, or comes with a modifier such as Ctrl. */
export function isTyped(event) {
  return event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented
    || Boolean(event.target.closest?.("input, textarea, select, dialog"));
}
