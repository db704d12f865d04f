// A token in the address (#token=…) is taken from there, where it would be seen and kept, before anything is asked.

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
