// The colour scheme that was chosen on this page, set before anything is drawn: a module would come too late.
"use strict";
try {
  const chosen = localStorage.getItem("foldline.scheme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.scheme = chosen;
} catch {
  // A browser that keeps nothing follows its own scheme.
}
