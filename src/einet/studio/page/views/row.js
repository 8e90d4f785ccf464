// Row: pick one of the data or type one; see how surprising each cell is, and what fills the holes.

import { api, newest } from "../server.js";
import { isAsked, parse, show } from "../axis.js";
import { button, field, h, replace } from "../dom.js";
import { cell, number } from "../format.js";
import { knowAll, on, store, tell, tellRefusal } from "../store.js";
import { cellCard, heat } from "./cell.js";

const PAGE = 12;
let current = { index: 0, cells: null };

export const row = {
  id: "row",
  title: "Row",
  fits: (state) => state.kind === "table",
  code: () => (current.cells ? { view: "row", cells: current.cells } : { view: "row", index: current.index }),
  make,
};

function make() {
  const list = h("div", { class: "scroll" });
  const where = h("span", { class: "hint" });
  const title = h("h2", {});
  const cards = h("div", { class: "cells" });
  const likely = h("output", { class: "hint", "aria-live": "polite" });
  let start = 0;
  let total = 0;
  let answer = null;
  // What the answer is about, which lags behind what was chosen last.
  let shown = null;

  const ask = newest(
    (wish) => api.post("/api/row", wish),
    (now, wish) => {
      answer = now;
      shown = wish;
      draw();
    },
    tellRefusal,
  );

  function choose(index) {
    current = { index, cells: null };
    ask({ index });
    for (const line of list.querySelectorAll("tr[data-index]")) line.setAttribute("aria-selected", String(Number(line.dataset.index) === index));
  }

  function edit(name, text) {
    const column = store.column.get(name);
    try {
      const value = text === "" ? null : parse(column, text);
      const cells = Object.fromEntries((answer?.cells ?? []).map((each) => [each.column, each.is_missing ? null : each.value]));
      current = { index: null, cells: { ...cells, [name]: value } };
      tell(null);
      ask({ cells: current.cells });
      for (const line of list.querySelectorAll("tr[aria-selected=true]")) line.setAttribute("aria-selected", "false");
    } catch (error) {
      tell(error.message);
    }
  }

  function draw() {
    title.textContent = shown.cells ? "A row of your own" : `Row ${number(shown.index + 1)}`;
    likely.textContent = `log p(row) = ${number(answer.log_prob)}`;
    likely.dataset.value = String(answer.log_prob);
    const open = new Set([...cards.querySelectorAll("details[open]")].map((element) => element.closest(".cell").dataset.column));
    const focused = cards.contains(document.activeElement) ? document.activeElement.closest(".cell")?.dataset.column : null;
    replace(cards, answer.cells.filter((each) => store.column.has(each.column))
      .map((each) => cellCard(store.column.get(each.column), each, (text) => edit(each.column, text), open.has(each.column))));
    if (focused) cards.querySelector(`.cell[data-column="${CSS.escape(focused)}"] .value`)?.focus();
    colourLine();
  }

  /** The chosen line of the table wears the same colours. */
  function colourLine() {
    for (const line of list.querySelectorAll("tr[data-index]")) {
      const isChosen = Number(line.dataset.index) === shown.index;
      for (const place of line.querySelectorAll("td")) {
        const found = isChosen ? answer.cells.find((each) => each.column === place.dataset.column) : null;
        place.dataset.heat = found ? heat(found) : "";
      }
    }
  }

  async function page(from) {
    if (!store.state.has_data) {
      list.closest(".card").hidden = true;
      return;
    }
    let rows;
    try {
      rows = await api.get(`/api/rows?start=${from}&count=${PAGE}`);
    } catch (error) {
      tellRefusal(error);
      return;
    }
    start = from;
    total = rows.total;
    where.textContent = `${number(start + 1)}–${number(Math.min(total, start + PAGE))} of ${number(total)}`;
    back.disabled = start === 0;
    forth.disabled = start + PAGE >= total;
    replace(list, h("table", { class: "grid rows" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "row"), rows.columns.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows.rows.map((cells, i) => h("tr", {
        data: { index: start + i }, "aria-selected": String(!current.cells && start + i === current.index),
        on: { click: () => choose(start + i) },
      },
      h("th", { scope: "row" }, button(number(start + i + 1), () => choose(start + i), { class: "quiet", "aria-label": `Row ${start + i + 1}` })),
      cells.map((value, j) => h("td", { class: value === null ? "hole" : "", data: { column: rows.columns[j] } }, cell(value))))))));
    if (answer) colourLine();
  }

  const back = button("←", () => page(Math.max(0, start - PAGE)), { "aria-label": "Earlier rows" });
  const forth = button("→", () => page(start + PAGE), { "aria-label": "Later rows" });
  const jump = h("input", { type: "number", min: 1, size: 6 });
  jump.addEventListener("change", () => {
    const index = Math.round(Number(jump.value)) - 1;
    if (!(index >= 0 && index < total)) return tell(`There are rows 1 to ${total}.`);
    page(Math.floor(index / PAGE) * PAGE);
    return choose(index);
  });

  function asEvidence() {
    if (!answer) return;
    const list = answer.cells.filter((each) => !each.is_missing && each.value !== null && isAsked(store.column.get(each.column) ?? { kind: "left out" }))
      .map((each) => ({ column: each.column, op: "is", value: each.value }));
    knowAll(list);
    location.hash = "#explore";
  }

  function blank() {
    current = { index: null, cells: Object.fromEntries(store.columns.filter(isAsked).map((column) => [column.name, null])) };
    ask({ cells: current.cells });
  }

  const element = h("div", { class: "view row-view" },
    h("section", { class: "card", "aria-label": "Rows of the data" },
      h("div", { class: "bar" }, h("h2", {}, "Pick a row"), h("div", { class: "grow" }), field("row", jump), back, where, forth), list),
    h("section", { class: "card", "aria-label": "The row" },
      h("div", { class: "bar" }, title, likely, h("div", { class: "grow" }), button("Type a row", blank), button("Use as evidence", asEvidence, { class: "primary" })),
      h("p", { class: "legend heat-legend" }, ["as expected", "unusual", "surprising", "very surprising"].map((text, i) => h("span", {}, h("i", { class: "key heat", data: { heat: i } }), text)), h("span", {}, h("i", { class: "key hole" }), "missing: filled in")),
      cards));

  const stop = on("columns", () => {
    page(0);
    if (store.state.has_data) choose(0);
    else blank();
  });
  page(Math.floor((current.index ?? 0) / PAGE) * PAGE);
  if (current.cells) ask({ cells: current.cells });
  else if (store.state.has_data) choose(current.index ?? 0);
  else blank();
  return { element, stop };
}

/** Start again at the first row, as another table is there. */
export function resetRow() {
  current = { index: 0, cells: null };
}

on("columns", resetRow);
