// Explore: one panel a column, evidence on top, a question in words, rows to take away.

import { api } from "../server.js";
import { panel } from "../charts/panel.js";
import { isAsked } from "../axis.js";
import { button, field, h, replace, saveAs } from "../dom.js";
import { evidenceBar, showOnly } from "../evidence.js";
import { count } from "../format.js";
import { attempt, evidenceList, MOST_PANELS, on, refresh, store, tell } from "../store.js";
import { questionBox } from "./question.js";

export const explore = {
  id: "explore",
  title: "Explore",
  fits: (state) => state.kind === "table",
  code: () => ({ view: "table", evidence: evidenceList(), columns: visible().map((column) => column.name) }),
  make,
};

let wanted = "";

function visible() {
  const text = wanted.trim().toLowerCase();
  return store.columns.filter((column) =>
    (store.only === null || store.only.includes(column.name)) && (!text || column.name.toLowerCase().includes(text)));
}

function make() {
  const bar = evidenceBar();
  const grid = h("div", { class: "panels" });
  const find = h("input", { type: "search", placeholder: "Find a column", "aria-label": "Find a column", size: 14 });
  const all = button("Show all columns", () => showOnly(null), { class: "quiet" });
  const legend = h("p", { class: "legend", "aria-label": "How to read the charts" },
    key("posterior", "given the evidence"), key("prior", "without evidence"), key("data", "data"));
  let panels = [];
  let most = MOST_PANELS;
  const more = button("", () => {
    most += MOST_PANELS;
    build();
  }, { hidden: true });

  function key(name, text) {
    return h("span", {}, h("i", { class: `key ${name}`, "aria-hidden": "true" }), text);
  }

  function build() {
    const found = visible();
    const shown = found.slice(0, most);
    panels = shown.map((column) => panel(column));
    replace(grid, panels.length ? panels.map(({ element }) => element) : h("p", { class: "hint" }, "No column has such a name."));
    more.hidden = found.length <= most;
    more.textContent = `Show more of the ${found.length} columns`;
    // Of a wide table only what is drawn is asked for.
    store.drawn = store.columns.length <= MOST_PANELS ? null : shown.filter(isAsked).map((column) => column.name);
    if (store.drawn?.some((name) => !store.answer?.columns[name])) refresh();
    all.hidden = store.only === null;
    const hasData = store.columns.some((column) => column.data);
    legend.querySelector(".key.data").parentElement.hidden = !hasData;
    if (store.answer) draw(store.answer);
  }

  function draw(answer) {
    for (const { column, update } of panels) update(answer.columns[column.name]);
    element.classList.remove("stale");
  }

  find.addEventListener("input", () => {
    wanted = find.value;
    build();
  });

  const element = h("div", { class: "view explore" },
    bar.element, questionBox(),
    h("div", { class: "tools" }, legend, h("div", { class: "grow" }), all, find, downloads()), grid, h("p", {}, more));

  const stops = [
    on("columns", build),
    on("only", build),
    on("answer", draw),
    on("refused", () => element.classList.add("stale")),
    on("evidence", () => panels.forEach(({ drawKnown }) => drawKnown())),
    bar.stop,
  ];
  build();
  return { element, stop: () => stops.forEach((stop) => stop()) };
}

/** Rows to take away: drawn under the evidence, or the data with its holes filled. */
function downloads() {
  const amount = h("input", { type: "number", min: 1, max: 1_000_000, value: "1000", size: 7 });
  const seed = h("input", { type: "number", min: 0, value: "0", size: 5 });
  const how = h("select", {}, ["mean", "median", "mode", "sample"].map((name) => h("option", { value: name }, name)));
  const base = () => (store.state.name ?? "table").replace(/\.[^.]+$/, "");

  const draw = button("Download csv", (event) => attempt(async () => {
    const n = Number(amount.value);
    if (!Number.isInteger(n) || n < 1) return tell("The number of rows must be a whole number from 1 on.");
    const blob = await api.file("POST", "/api/sample", { evidence: evidenceList(), n, seed: Number(seed.value) || 0 });
    saveAs(blob, `${base()}-synthetic.csv`);
    return tell(`${count(n, "synthetic row")} saved.`, "note");
  }, event.currentTarget), { class: "sample" });

  const fill = button("Download csv", (event) => attempt(async () => {
    const blob = await api.file("POST", "/api/impute", { method: how.value, evidence: evidenceList() });
    saveAs(blob, `${base()}-filled.csv`);
    tell("The table with its holes filled is saved.", "note");
  }, event.currentTarget), { class: "impute" });

  const filled = h("fieldset", {}, h("legend", {}, "The table, holes filled"), field("by their", how), fill);
  const menu = h("details", { class: "menu" }, h("summary", {}, "Download rows"),
    h("div", { class: "drop" },
      h("fieldset", {}, h("legend", {}, "Synthetic rows, given the evidence"), field("rows", amount), field("seed", seed), draw),
      filled));
  menu.addEventListener("toggle", () => { filled.hidden = !store.state.has_data; });
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });
  return menu;
}
