// What all views share: the server's state, the columns, the evidence and the newest answer.

import { answersAsDrawn, asDrawn } from "./grid.js";
import { api, link, newest } from "./server.js";

export const store = {
  state: null,
  columns: [],
  column: new Map(),
  evidence: new Map(),
  answer: null,
  failure: null,
  only: null,
  // Which columns are drawn, where there are too many to draw all of them; null for all.
  drawn: null,
  schema: null,
};

/** So many panels are drawn at first. */
export const MOST_PANELS = 60;

const listeners = new Map();

/** Call `listener` whenever `event` happens; returns how to stop that. */
export function on(event, listener) {
  if (!listeners.has(event)) listeners.set(event, new Set());
  listeners.get(event).add(listener);
  return () => listeners.get(event).delete(listener);
}

export function emit(event, ...details) {
  for (const listener of [...(listeners.get(event) ?? [])]) listener(...details);
}

/** One plain line at the foot of the page; null takes it away. */
export function tell(message, kind = "error") {
  emit("message", message ? message[0].toUpperCase() + message.slice(1) : null, kind);
}

/** Show why something was refused, unless the banner says so already. */
export function tellRefusal(error) {
  if (link.status === "here") tell(error.message);
}

/** Run something that may be refused, and show the refusal as a line. */
export async function attempt(action, control) {
  if (control) control.disabled = true;
  try {
    return await action();
  } catch (error) {
    tellRefusal(error);
    return undefined;
  } finally {
    if (control) control.disabled = false;
  }
}

/** The evidence as the server takes it. */
export function evidenceList() {
  return [...store.evidence.values()];
}

const ask = newest(
  (evidence) => api.post("/api/marginals", { evidence, columns: store.drawn ?? undefined, mass: 0.9 }),
  (answer, evidence, count) => {
    store.answer = answer;
    answer.columns = answersAsDrawn(store.columns, answer.columns);
    store.failure = null;
    emit("answer", answer, evidence);
    afterPaint(() => performance.mark("evidence-drawn", { detail: { count } }));
  },
  (error, evidence, count) => {
    store.failure = error.message;
    emit("refused", evidence);
    tellRefusal(error);
    afterPaint(() => performance.mark("evidence-refused", { detail: { count } }));
  },
);

/** After the frame in which the present changes are painted. */
function afterPaint(action) {
  requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = action;
    channel.port2.postMessage(null);
  });
}

/** Ask what follows from the evidence now. */
export function refresh() {
  if (performance.getEntriesByType("mark").length > 2000) performance.clearMarks();
  const start = performance.now();
  const count = ask(evidenceList());
  performance.mark("evidence-start", { startTime: start, detail: { count } });
}

/** Know this of a column, in place of what was known of it. */
export function know(evidence) {
  store.evidence.set(evidence.column, { negated: false, ...evidence });
  emit("evidence");
  refresh();
}

/** Know all of this, and nothing else. */
export function knowAll(list) {
  store.evidence = new Map(list.map((evidence) => [evidence.column, { negated: false, ...evidence }]));
  emit("evidence");
  refresh();
}

/** Know nothing of a column, or of all of them. */
export function forget(column) {
  if (column === undefined) store.evidence.clear();
  else store.evidence.delete(column);
  emit("evidence");
  refresh();
}

/** Whether evidence can still be said of a column, now that there is another model. */
function fits(column, evidence) {
  if (!column) return false;
  if (Array.isArray(column.edges)) return evidence.op !== "among";
  const values = evidence.op === "among" ? evidence.values : [evidence.value];
  return evidence.op !== "between" && values.every((value) => column.values?.includes(value));
}

/** Read the columns of a model of a table. */
export async function loadColumns() {
  store.columns = (await api.get("/api/columns")).columns.map(asDrawn);
  store.column = new Map(store.columns.map((column) => [column.name, column]));
  for (const [name, evidence] of [...store.evidence]) {
    if (!fits(store.column.get(name), evidence)) store.evidence.delete(name);
  }
  store.only = null;
  store.drawn = store.columns.length > MOST_PANELS ? store.columns.slice(0, MOST_PANELS).filter((column) => column.prior).map((column) => column.name) : null;
  store.answer = null;
  emit("columns");
  emit("evidence");
  refresh();
}
