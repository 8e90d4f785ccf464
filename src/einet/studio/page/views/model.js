// Model: what it is, how it is built, what its nodes hold, how it was trained, what the file says.

import { api } from "../api.js";
import { lossCurve } from "../charts/curve.js";
import { regionTree } from "../charts/regions.js";
import { button, h, replace, saveAs } from "../dom.js";
import { cell, number, short } from "../format.js";
import { attempt, on, store } from "../store.js";

export const model = {
  id: "model",
  title: "Model",
  fits: (state) => state.kind !== "empty",
  code: () => ({ view: "model" }),
  make,
};

function make() {
  const element = h("div", { class: "view model" });
  let isGone = false;

  async function load() {
    const answer = await attempt(() => api.get("/api/model"));
    if (!answer || isGone) return;
    replace(element, overview(answer), structure(), h("div", { class: "two" }, training(answer), file(answer)));
  }

  const stop = on("model-changed", load);
  load();
  return { element, stop: () => { isGone = true; stop(); } };
}

function plain(value) {
  if (value === null || value === undefined) return "–";
  if (Array.isArray(value)) return short(value.map(plain).join(", "), 200);
  if (typeof value === "object") return short(Object.entries(value).map(([name, each]) => `${name}: ${plain(each)}`).join(", "), 300);
  if (typeof value === "boolean") return value ? "yes" : "no";
  return cell(value);
}

function overview(answer) {
  const tiles = { parameters: answer.parameters, sums: answer.sums, ...answer.structure };
  const summary = answer.text ?? answer["text summary"] ?? answer.summary;
  return h("section", { class: "card", "aria-label": "Summary" },
    h("div", { class: "bar" }, h("h2", {}, store.state?.name ?? "Model"), h("div", { class: "grow" }),
      button("Save the model", (event) => attempt(async () => {
        saveAs(await api.file("GET", "/api/model/file"), `${(store.state.name ?? "model").replace(/\.[^.]+$/, "")}.einet`);
      }, event.currentTarget))),
    h("dl", { class: "tiles" }, Object.entries(tiles).filter(([, value]) => value !== null && value !== undefined && typeof value !== "object")
      .map(([name, value]) => h("div", {}, h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, plain(value))))),
    answer.families ? h("p", { class: "hint" }, `Families: ${plain(answer.families)}`) : null,
    summary ? h("pre", { class: "summary-text" }, summary) : null);
}

function structure() {
  const held = h("div", { class: "held" }, h("p", { class: "hint" }, "Choose a region to see what it holds."));
  const tree = regionTree((region) => attempt(async () => {
    const answer = await api.get(`/api/model/parameters?region=${encodeURIComponent(region.id)}`);
    replace(held, parameters(region, answer));
  }));
  return h("section", { class: "card", "aria-label": "Structure" },
    h("h2", {}, "Structure"),
    h("p", { class: "hint" }, "Regions are sets of variables; small squares split them. Click to unfold."),
    h("div", { class: "two wide" }, tree.element, held));
}

/** Whatever numbers the server has of a region: plain facts first, then lists as small tables. */
function parameters(region, answer) {
  const facts = [];
  const tables = [];
  for (const [name, value] of Object.entries(answer)) {
    if (Array.isArray(value) && value.length && typeof value[0] === "object") tables.push([name, value]);
    else facts.push([name, value]);
  }
  return [
    h("h3", {}, region.label),
    h("dl", { class: "numbers" }, facts.map(([name, value]) => [h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, plain(value))])),
    tables.map(([name, rows]) => {
      const heads = Array.isArray(rows[0]) ? null : Object.keys(rows[0]);
      return [h("h4", {}, name.replaceAll("_", " ")),
        h("div", { class: "scroll" }, h("table", { class: "grid" },
          heads ? h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head.replaceAll("_", " "))))) : null,
          h("tbody", {}, rows.map((row) => h("tr", {}, (heads ? heads.map((head) => row[head]) : row).map((value) => h("td", { class: typeof value === "number" ? "number" : "" }, plain(value))))))))];
    }),
  ];
}

function training(answer) {
  const history = answer.history;
  if (!history || !(history.train?.length || history.valid?.length)) {
    return h("section", { class: "card", "aria-label": "Training history" }, h("h2", {}, "Training"), h("p", { class: "hint" }, "The file has no history of its training."));
  }
  const curve = lossCurve();
  const section = h("section", { class: "card", "aria-label": "Training history" }, h("h2", {}, "Training"), curve.element);
  requestAnimationFrame(() => curve.draw(history.train ?? [], history.valid ?? []));
  return section;
}

function file(answer) {
  const entries = Object.entries({ format: answer.file?.format, ...(answer.file?.metadata ?? {}) }).filter(([, value]) => value !== undefined && value !== null);
  return h("section", { class: "card", "aria-label": "File" }, h("h2", {}, "What the file says"),
    entries.length
      ? h("dl", { class: "numbers" }, entries.map(([name, value]) => [h("dt", {}, name), h("dd", {}, plain(value))]))
      : h("p", { class: "hint" }, "Nothing beside the model."));
}
