// What is known, in words and as chips: change, negate, remove.

import { exactly, hasAxis, parse, show } from "./axis.js";
import { append, button, field, freshId, h, replace } from "./dom.js";
import { chance, number, short } from "./format.js";
import { emit, forget, know, on, store, tell } from "./store.js";

/** One piece of evidence in words, without the column's name. */
export function words(column, evidence) {
  const not = evidence.negated;
  if (evidence.op === "is") return `${not ? "is not" : "is"} ${exactly(column, evidence.value)}`;
  if (evidence.op === "among") {
    const texts = evidence.values.map((value) => show(column, value));
    if (texts.length === 1) return `${not ? "is not" : "is"} ${texts[0]}`;
    return `${not ? "is none of" : "is one of"} ${short(texts.join(", "), 48)}`;
  }
  const { lower, upper } = evidence;
  if (lower === null && upper !== null) return `${not ? ">" : "≤"} ${show(column, upper)}`;
  if (upper === null && lower !== null) return `${not ? "<" : "≥"} ${show(column, lower)}`;
  return `${not ? "not " : ""}${show(column, lower)} to ${show(column, upper)}`;
}

/** The line on top: P(evidence), a chip for each column, and what can be done with them. */
export function evidenceBar() {
  const probability = h("output", { class: "probability", "aria-live": "polite", id: "probability" });
  const caption = h("span", { class: "caption" });
  const chips = h("ul", { class: "chips", "aria-label": "Evidence" });
  const clear = button("Clear all", () => forget(), { class: "quiet" });
  const editor = h("div", { class: "editor", hidden: true });
  const bar = h("section", { class: "evidence", "aria-label": "Evidence in force" },
    h("div", { class: "counted" }, caption, probability), chips, clear, editor);

  let edited = null;

  function edit(name) {
    edited = edited === name ? null : name;
    editor.hidden = edited === null;
    if (edited !== null) {
      replace(editor, evidenceEditor(store.column.get(name), () => edit(name)));
      editor.querySelector("input, button")?.focus();
    }
    draw();
  }

  function draw() {
    if (edited !== null && !store.evidence.has(edited)) {
      edited = null;
      editor.hidden = true;
    }
    const focused = chips.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    replace(chips, [...store.evidence.values()].map((evidence) => chip(evidence, edit, edited)));
    if (focused) {
      const again = [...chips.querySelectorAll("button")].find((element) => element.dataset.key === focused);
      (again ?? clear).focus();
    }
    clear.hidden = store.evidence.size === 0;
    if (store.evidence.size === 0) {
      append(chips, [h("li", { class: "hint" }, "Nothing is known yet. Click a bar, or drag across a histogram.")]);
    }
  }

  function count() {
    const answer = store.answer;
    if (!answer) return;
    const isDensity = answer.probability === null || answer.probability === undefined;
    caption.textContent = isDensity ? "density of the evidence" : "P(evidence)";
    probability.textContent = isDensity
      ? `log p = ${number(answer.log_evidence)}`
      : store.evidence.size === 0 ? "100 %" : chance(answer.probability, answer.log_evidence);
    probability.dataset.value = isDensity ? "" : String(answer.probability);
    probability.dataset.log = String(answer.log_evidence);
    bar.classList.remove("refused", "waiting");
  }

  const stops = [
    on("evidence", () => {
      bar.classList.add("waiting");
      draw();
    }),
    on("answer", count),
    on("refused", () => {
      caption.textContent = "P(evidence)";
      probability.textContent = "no answer";
      probability.dataset.value = "";
      bar.classList.remove("waiting");
      bar.classList.add("refused");
    }),
  ];
  draw();
  count();
  return { element: bar, stop: () => stops.forEach((stop) => stop()), edit };
}

function chip(evidence, edit, edited) {
  const { column: name } = evidence;
  const column = store.column.get(name);
  const text = words(column, evidence);
  return h("li", { class: evidence.negated ? "chip negated" : "chip", data: { column: name } },
    button([h("b", {}, name), ` ${text}`], () => edit(name), {
      class: "what", "aria-expanded": String(edited === name), "aria-label": `Change: ${name} ${text}`, data: { key: `edit ${name}` },
    }),
    button("not", () => know({ ...evidence, negated: !evidence.negated }), {
      class: "not", "aria-pressed": String(Boolean(evidence.negated)), "aria-label": `Negate ${name}`, data: { key: `not ${name}` },
      title: evidence.negated ? "Say that it is so" : "Say that it is not so",
    }),
    button("×", () => forget(name), { class: "remove", "aria-label": `Remove ${name}`, title: "Remove", data: { key: `remove ${name}` } }),
  );
}

/** A form to set what is known of one column, also without a mouse. */
export function evidenceEditor(column, close) {
  const now = store.evidence.get(column.name);
  return hasAxis(column) ? rangeForm(column, now, close) : stateForm(column, now, close);
}

function rangeForm(column, now, close) {
  const input = (value, placeholder) =>
    h("input", { type: column.kind === "date" ? "date" : "text", inputmode: "decimal", size: 9, placeholder, value: column.kind === "date" ? String(value ?? "").slice(0, 10) : value ?? "" });
  const exact = now?.op === "is" ? now.value : null;
  const lower = input(now?.op === "between" ? now.lower : exact, "any");
  const upper = input(now?.op === "between" ? now.upper : exact, "any");
  return h("form", {
    class: "row-form", "aria-label": `Range of ${column.name}`,
    on: {
      submit(event) {
        event.preventDefault();
        try {
          const [low, high] = [parse(column, lower.value), parse(column, upper.value)];
          if (low === null && high === null) forget(column.name);
          else if (low !== null && low === high) know({ column: column.name, op: "is", value: low, negated: now?.negated ?? false });
          else know({ column: column.name, op: "between", lower: low, upper: high, negated: now?.negated ?? false });
          tell(null);
          close?.();
        } catch (error) {
          tell(error.message);
        }
      },
    },
  }, field("from", lower), field("to", upper), h("button", { type: "submit" }, "Set"));
}

function stateForm(column, now, close) {
  const chosen = new Set(now?.op === "among" ? now.values : now ? [now.value] : []);
  const boxes = column.values.map((value) => {
    const id = freshId("state");
    return h("span", { class: "check" },
      h("input", { type: "checkbox", id, checked: chosen.has(value), on: { change: (event) => (event.target.checked ? chosen.add(value) : chosen.delete(value)) } }),
      h("label", { for: id }, show(column, value)));
  });
  return h("form", {
    class: "row-form", "aria-label": `States of ${column.name}`,
    on: {
      submit(event) {
        event.preventDefault();
        setStates(column, [...chosen], now?.negated ?? false);
        close?.();
      },
    },
  }, h("div", { class: "checks" }, boxes), h("button", { type: "submit" }, "Set"));
}

/** Know that a column is in one of some states; none of them is nothing known. */
export function setStates(column, values, negated = false) {
  if (values.length === 0) forget(column.name);
  else if (values.length === 1) know({ column: column.name, op: "is", value: values[0], negated });
  else know({ column: column.name, op: "among", values: column.values.filter((value) => values.includes(value)), negated });
}

/** Which states are known to be possible, for drawing them as chosen. */
export function chosenStates(column) {
  const now = store.evidence.get(column.name);
  if (!now) return new Set();
  return new Set(now.op === "among" ? now.values : now.op === "is" ? [now.value] : []);
}

/** Look at some columns only; null is all of them. */
export function showOnly(names) {
  store.only = names;
  emit("only");
}
