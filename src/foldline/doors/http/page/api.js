// The client of the HTTP interface: JSON, problems, event streams, and the bearer token of this tab.

const TOKEN = "foldline.token";

/** A refusal of the server (application/problem+json). */
export class Problem extends Error {
  constructor(status, body) {
    const place = body.field || body.title;
    super([place, body.detail].filter(Boolean).join(": ") || `the server answered ${status}`);
    this.status = status;
    this.field = body.field ?? null;
  }
}

let askForToken = async () => null;
let asking = null;

/** Set the function that asks the person for a token; it resolves to null without one. */
export function onUnauthorized(ask) {
  askForToken = ask;
}

function headers(extra) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...extra, Authorization: `Bearer ${token}` } : extra;
}

// One form for all requests that are refused at the same time.
function newToken(refused) {
  const now = sessionStorage.getItem(TOKEN);
  if (now !== refused) return Promise.resolve(now);
  asking ??= askForToken(Boolean(refused)).then((token) => {
    if (token) sessionStorage.setItem(TOKEN, token);
    return token;
  }).finally(() => { asking = null; });
  return asking;
}

/** The response of an accepted request. Throws Problem, or TypeError where the server is not reached. */
export async function open(path, { method = "GET", body, accept = "application/json", signal, key } = {}) {
  for (;;) {
    const used = sessionStorage.getItem(TOKEN);
    const extra = { Accept: accept };
    if (body !== undefined) extra["Content-Type"] = "application/json";
    if (key) extra["Idempotency-Key"] = key;
    const response = await fetch(path, {
      method, signal, headers: headers(extra), cache: "no-store", credentials: "omit",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (response.ok) return response;
    if (response.status === 401 && await newToken(used)) continue;
    throw new Problem(response.status, await response.json().catch(() => ({})));
  }
}

export async function get(path, signal) {
  return (await open(path, { signal })).json();
}

export async function post(path, body = {}, key = undefined) {
  return (await open(path, { method: "POST", body, key })).json();
}

/** The path of a session, or of a part of it. */
export function sessionPath(id, rest = "") {
  return `v1/sessions/${encodeURIComponent(id)}${rest}`;
}

/** The events of a stream as [name, data] (Server-Sent Events, WHATWG HTML 9.2.6); `alive` is called for every piece. */
export async function* events(response, alive = () => {}) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let name = "";
  let data = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (data.length) yield [name || "message", JSON.parse(data.join("\n"))];
          name = "";
          data = [];
        } else {
          const [, field, text] = /^([^:]*)(?:: ?)?(.*)$/s.exec(line);
          if (field === "event") name = text;
          else if (field === "data") data.push(text);
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
