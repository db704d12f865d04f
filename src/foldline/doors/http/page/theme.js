// The chosen colour scheme, set before the first paint: a module would run too late.
"use strict";
try {
  const chosen = localStorage.getItem("foldline.scheme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.scheme = chosen;
} catch {
  // Without storage the browser's own scheme applies.
}
