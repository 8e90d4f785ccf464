// The server: one way to ask, what its refusals mean, and whether it is still there.

const KEY = "einet-token";

/** A refusal of the server, as the sentence that it sent. */
export class Refusal extends Error {
  constructor(message, status, answer) {
    super(message);
    this.status = status;
    this.answer = answer;
  }
}

/** Take the token out of the address, where others could read it over one's shoulder. */
export function takeToken() {
  const address = new URL(location.href);
  const token = address.searchParams.get("token");
  if (token) {
    sessionStorage.setItem(KEY, token);
    address.searchParams.delete("token");
    history.replaceState(null, "", address);
  }
  return sessionStorage.getItem(KEY);
}

/** What the page knows of its server: "here", "gone", "restarted" or "refused". */
export const link = { status: "here", instance: null, listeners: new Set() };

function setStatus(status) {
  if (link.status === status) return;
  const before = link.status;
  link.status = status;
  for (const listener of link.listeners) listener(status, before);
}

async function send(method, path, { json, body, signal } = {}) {
  const headers = { "X-Einet-Token": sessionStorage.getItem(KEY) ?? "" };
  if (json !== undefined) headers["Content-Type"] = "application/json";
  else if (body !== undefined) headers["Content-Type"] = "application/octet-stream";
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: json !== undefined ? JSON.stringify(json) : body,
      cache: "no-store",
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    // A body that is refused while it is sent looks like a lost connection: ask before saying so.
    if (body !== undefined && path !== "/api/state" && (await isHere())) {
      throw new Refusal("The server closed the connection before the whole file was sent: it may be too large.", 413);
    }
    setStatus("gone");
    throw new Refusal("The server does not answer.", 0);
  }
  if (!response.ok) {
    let answer = {};
    try {
      answer = await response.json();
    } catch {
      // Not from the studio, or cut off: the status has to do.
    }
    if (response.status === 401 || response.status === 403) setStatus("refused");
    throw new Refusal(answer.error ?? `The server answered with status ${response.status}.`, response.status, answer);
  }
  return response;
}

async function isHere() {
  try {
    await send("GET", "/api/state");
    return true;
  } catch {
    return false;
  }
}

export const api = {
  async get(path, options) {
    return (await send("GET", path, options)).json();
  },
  async post(path, json, options) {
    return (await send("POST", path, { json, ...options })).json();
  },
  async upload(path, body) {
    return (await send("POST", path, { body })).json();
  },
  async remove(path) {
    return (await send("DELETE", path)).json();
  },
  async file(method, path, json) {
    return (await send(method, path, { json })).blob();
  },
};

/** The state of the server; notices a restart by its instance. */
export async function fetchState() {
  const state = await api.get("/api/state");
  if (link.instance === null) link.instance = state.instance;
  setStatus(link.instance === state.instance ? "here" : "restarted");
  return state;
}

/** Ask now and then whether the server is there, more often while it is not. */
export function watch(onState) {
  let timer = null;
  async function look() {
    clearTimeout(timer);
    if (document.visibilityState === "visible") {
      try {
        onState(await fetchState());
      } catch {
        // The status is set, and the banner tells.
      }
    }
    timer = setTimeout(look, link.status === "here" ? 4000 : 1000);
  }
  link.listeners.add((status) => {
    if (status === "gone") look();
  });
  document.addEventListener("visibilitychange", look);
  timer = setTimeout(look, 4000);
}

/**
 * A question that is asked again and again while something moves. One request is under way at a
 * time; of those that wait, only the newest is sent; an answer older than what is drawn is dropped.
 */
export function newest(ask, draw, fail) {
  let number = 0;
  let drawn = 0;
  let waiting = null;
  let isBusy = false;

  async function next() {
    const { input, count } = waiting;
    waiting = null;
    isBusy = true;
    try {
      const answer = await ask(input, count);
      if (count > drawn) {
        drawn = count;
        draw(answer, input, count);
      }
    } catch (error) {
      // A refusal of something that is no longer asked concerns nobody.
      if (count === number) fail(error, input, count);
    } finally {
      isBusy = false;
    }
    if (waiting) next();
  }

  return (input) => {
    number += 1;
    waiting = { input, count: number };
    if (!isBusy) next();
    return number;
  };
}
