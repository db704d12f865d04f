// Which keys are free to be commands.

/** Whether a key is typed into something, belongs to a dialogue, or goes with Ctrl and the like. */
export function isTyped(event) {
  return event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented
    || Boolean(event.target.closest?.("input, textarea, select, dialog"));
}
