// A token in the address (#token=…) is removed before the first request: there it would be seen, and kept in the history.

const found = /^#token=(.+)$/.exec(location.hash);
if (found) {
  let token = found[1];
  try {
    token = decodeURIComponent(token);
  } catch {
    // It was not encoded.
  }
  sessionStorage.setItem("foldline.token", token);
  history.replaceState(null, "", location.pathname + location.search);
}
