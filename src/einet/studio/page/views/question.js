// A question in the query language, and its answer as a line.

import { api } from "../server.js";
import { h, replace } from "../dom.js";
import { cell, percent } from "../format.js";
import { store } from "../store.js";
import { hasAxis, isAsked } from "../axis.js";

/** A question that this table can answer, to show how they are written. */
function example() {
  const asked = store.columns.filter(isAsked);
  const states = asked.find((column) => column.values?.length);
  const axis = asked.find(hasAxis);
  const write = (value) => (/^[\w.-]+$/.test(String(value)) ? String(value) : JSON.stringify(String(value)));
  const name = (column) => (/^\w+$/.test(column.name) ? column.name : `"${column.name.replaceAll('"', '\\"')}"`);
  if (states && axis) return `median(${name(axis)} | ${name(states)}=${write(states.values[0])})`;
  if (states) return `P(${name(states)}=${write(states.values[0])})`;
  return axis ? `E(${name(axis)})` : "P(column=value | other=value)";
}

export function questionBox() {
  const input = h("input", { type: "text", class: "ask", "aria-label": "Question", placeholder: `Ask, for example  ${example()}`, spellcheck: "false", autocomplete: "off" });
  const answers = h("ol", { class: "answers", "aria-live": "polite" });

  async function ask(event) {
    event.preventDefault();
    const question = input.value.trim();
    if (!question) return;
    let line;
    try {
      const answer = await api.post("/api/ask", { question });
      line = h("li", { data: { value: answer.value === null || answer.value === undefined ? "" : JSON.stringify(answer.value) } },
        h("code", {}, question), answer.values ? table(answer) : h("b", {}, worded(answer)));
    } catch (error) {
      const position = error.answer?.position;
      line = h("li", { class: "wrong" }, pointed(question, position), h("span", {}, error.message));
      if (Number.isInteger(position)) input.setSelectionRange(position, Math.min(question.length, position + 1));
    }
    answers.prepend(line);
    while (answers.childElementCount > 4) answers.lastElementChild.remove();
  }

  return h("form", { class: "question", role: "search", "aria-label": "Ask a question", on: { submit: ask } },
    h("div", { class: "line" }, input, h("button", { type: "submit" }, "Ask")), answers);
}

function worded(answer) {
  if (answer.kind === "probability" && typeof answer.value === "number") return percent(answer.value);
  return answer.text ?? cell(answer.value);
}

function table(answer) {
  // States with their probabilities, or shares with their quantiles.
  const isQuantile = answer.values.some(({ number }) => typeof number !== "number" || number < 0 || number > 1);
  return h("span", { class: "list" }, answer.values.slice(0, 12).map(({ value, number }) =>
    h("span", {}, isQuantile ? `${cell(value)}: ${cell(number)}` : `${cell(value)} ${percent(number)}`)));
}

function pointed(question, position) {
  if (!Number.isInteger(position) || position >= question.length) return h("code", {}, question);
  return replace(h("code", {}), question.slice(0, position), h("mark", {}, question[position]), question.slice(position + 1));
}
