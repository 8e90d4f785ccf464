// One panel for one column: its chart, its numbers on demand, its evidence by hand.

import { exactly, hasAxis, heavySpikes, isAsked, show } from "../axis.js";
import { button, h, replace } from "../dom.js";
import { number, percent } from "../format.js";
import { chosenStates, evidenceEditor, setStates } from "../evidence.js";
import { forget, know, store } from "../store.js";
import { histogram } from "./histogram.js";
import { stateRows } from "./states.js";

/** How high a chart is, spikes below it included. */
const HEIGHT = 172;

export function panel(column) {
  const mark = h("span", { class: "mark", hidden: true }, "known");
  const numbers = h("dl", { class: "numbers" });
  const by = h("div", { class: "by-hand" });
  const values = h("table", { class: "values" });
  const details = h("details", { class: "more", on: { toggle: () => drawDetails() } },
    h("summary", {}, "numbers"), numbers, by, values);
  const body = h("div", { class: "chart" });
  const said = h("p", { class: "visually-hidden", role: "status" });
  const summary = h("span", { class: "summary" });
  const title = h("h3", { title: column.name }, column.name);
  const element = h("article", { class: "panel", data: { column: column.name, kind: column.kind } },
    h("header", {}, title, mark, summary), body, isAsked(column) ? details : null, said);
  element.addEventListener("said", (event) => { said.textContent = event.detail; });

  let axis = null;
  let states = null;
  let spikes = null;
  let updateSpikes = null;
  let answer = column.prior ?? null;

  if (!isAsked(column)) {
    const only = column.values?.[0] ?? column.prior?.mode;
    body.append(h("p", { class: "hint" }, column.kind === "constant"
      ? `always ${show(column, only)}` : "left out of the model: it names rows"));
  } else if (hasAxis(column)) {
    const heavy = heavySpikes(column);
    axis = histogram(column, HEIGHT - (heavy.length ? 10 + 24 * Math.min(3, heavy.length) : 0));
    body.append(axis.element);
    new ResizeObserver(() => axis.resize(Math.floor(body.clientWidth))).observe(body);
    if (heavy.length) {
      const pickHeavy = (list) => list && heavy.map((i) => list[i]);
      const shares = { prior: pickHeavy(column.prior?.spikes), data: pickHeavy(column.data?.spikes) };
      spikes = stateRows(column, pickHeavy(column.spikes), shares, pickSpike, chosenSpike, "exactly ");
      updateSpikes = (list) => spikes.update(pickHeavy(list));
      spikes.element.classList.add("spikes");
      body.append(spikes.element);
    }
  } else {
    states = stateRows(column, column.values ?? [], { prior: column.prior?.values, data: column.data?.values }, pick, () => chosenStates(column));
    body.append(states.element);
  }

  function pick(value, isMore) {
    const known = store.evidence.get(column.name);
    const now = chosenStates(column);
    if (isMore) {
      if (now.has(value)) now.delete(value);
      else now.add(value);
      setStates(column, [...now], known?.negated ?? false);
    } else if (now.size === 1 && now.has(value)) forget(column.name);
    else setStates(column, [value]);
  }

  function chosenSpike() {
    const known = store.evidence.get(column.name);
    return new Set(known?.op === "is" ? [known.value] : []);
  }

  function pickSpike(value) {
    if (chosenSpike().has(value)) forget(column.name);
    else know({ column: column.name, op: "is", value });
  }

  function drawDetails() {
    if (!details.open || !answer) return;
    const line = (name, text) => [h("dt", {}, name), h("dd", {}, text)];
    replace(numbers,
      answer.mean !== null && answer.mean !== undefined ? line("mean", show(column, answer.mean)) : null,
      answer.median !== null && answer.median !== undefined ? line("median", show(column, answer.median)) : null,
      answer.interval ? line("90 % interval", `${show(column, answer.interval[0])} to ${show(column, answer.interval[1])}`) : null,
      answer.mode !== null && answer.mode !== undefined ? line("likeliest", show(column, answer.mode)) : null,
      answer.entropy !== null && answer.entropy !== undefined ? line("entropy", `${number(answer.entropy)} nats`) : null);
    if (!by.hasChildNodes() || !by.contains(document.activeElement)) replace(by, evidenceEditor(column));
    const exact = (column.spikes ?? []).map((spike, i) => [`exactly ${exactly(column, spike)}`, column.data?.spikes?.[i], column.prior?.spikes?.[i], answer.spikes?.[i]]);
    const rows = [...((axis ?? states)?.table() ?? []), ...exact];
    replace(values, h("thead", {}, h("tr", {}, ["", "data", "prior", "now"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, rows.map(([name, ...shares]) => h("tr", {}, h("th", { scope: "row" }, name), shares.map((share) => h("td", {}, percent(share)))))));
  }

  function drawKnown() {
    const known = store.evidence.get(column.name);
    element.classList.toggle("known", Boolean(known));
    mark.hidden = !known;
    mark.textContent = known?.negated ? "not" : "known";
    axis?.drawChoice();
    states?.draw();
    spikes?.draw();
  }

  function update(now) {
    if (!now) return;
    answer = now;
    axis?.update(now);
    if (now.spikes) updateSpikes?.(now.spikes);
    if (now.values) states?.update(now.values);
    summary.textContent = axis ? `median ${show(column, now.median)}` : "";
    for (const name of ["mean", "median", "mode"]) element.dataset[name] = now[name] ?? "";
    element.dataset.interval = JSON.stringify(now.interval ?? null);
    element.dataset.shares = JSON.stringify(now.values ?? axis?.drawn() ?? null);
    element.dataset.spikes = JSON.stringify(now.spikes ?? null);
    drawDetails();
  }

  drawKnown();
  update(answer);
  return { element, column, update, drawKnown };
}
