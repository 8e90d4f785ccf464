// Model: what it is, how it is built, what its nodes hold, how it was trained, what the file says.

import { api } from "../server.js";
import { lossCurve } from "../charts/curve.js";
import { regionTree } from "../charts/regions.js";
import { button, h, replace, saveAs } from "../dom.js";
import { cell, count, percent, short } from "../format.js";
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
  const { layers, models, ...graph } = answer.structure ?? {};
  const tiles = { parameters: answer.parameters, ...(models > 1 ? { models } : {}), ...graph, "sums a region": answer.sums?.number };
  return h("section", { class: "card", "aria-label": "Summary" },
    h("div", { class: "bar" }, h("h2", {}, store.state?.name ?? "Model"), h("div", { class: "grow" }),
      button("Save the model", (event) => attempt(async () => {
        saveAs(await api.file("GET", "/api/model/file"), `${(store.state.name ?? "model").replace(/\.[^.]+$/, "")}.einet`);
      }, event.currentTarget))),
    h("dl", { class: "tiles" }, Object.entries(tiles).filter(([, value]) => value !== null && value !== undefined && typeof value !== "object")
      .map(([name, value]) => h("div", {}, h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, plain(value))))),
    h("p", { class: "hint" }, `Families of the variables: ${Object.entries(answer.families ?? {}).map(([name, times]) => `${name} (${times})`).join(", ")}. `,
      layers?.length > 1 ? `Regions in each layer, leaves first: ${layers.join(", ")}.` : ""),
    h("div", { class: "two" }, [answer.text, answer.summary].filter(Boolean).map((text) => h("pre", { class: "summary-text" }, text))));
}

function structure() {
  const held = h("div", { class: "held" }, h("p", { class: "hint" }, "Choose a region to see what it holds."));
  const tree = regionTree((region) => attempt(async () => {
    if (region.kind === "mixture") return replace(held, h("p", { class: "hint" }, "A mixture of models: each has a weight and a graph of its own."));
    const answer = await api.get(`/api/model/parameters?region=${encodeURIComponent(region.id)}`);
    return replace(held, answer.kind === "leaf" ? leaf(region, answer) : sums(region, answer));
  }));
  return h("section", { class: "card", "aria-label": "Structure" },
    h("h2", {}, "Structure"),
    h("p", { class: "hint" }, "Regions are sets of variables; small squares split them. Click to unfold."),
    h("div", { class: "two wide" }, tree.element, held));
}

function grid(heads, rows) {
  return h("div", { class: "scroll" }, h("table", { class: "grid" },
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((value) => h("td", { class: typeof value === "number" ? "number" : "" }, plain(value))))))));
}

/** The densities of a leaf: for each variable a line for each entry. */
function leaf(region, answer) {
  const left = answer.count - answer.variables.length;
  return [
    h("h3", {}, region.label),
    h("p", { class: "hint" }, `A leaf with ${count(answer.entries, "density", "densities")} of ${count(answer.count, "variable")}.`),
    answer.variables.map((variable) => {
      if (variable.probabilities) {
        return [h("h4", {}, `${variable.name}: ${variable.family}, probabilities`),
          grid(["entry", ...variable.states.map((state) => plain(state))], variable.probabilities.map((shares, i) => [i + 1, ...shares.map(percent)]))];
      }
      const known = ["low", "median", "high"].every((name) => variable[name]) ? ["low", "median", "high"] : ["mean", "deviation"];
      return [h("h4", {}, `${variable.name}: ${variable.family}`),
        grid(["entry", ...known], variable[known[0]].map((_, i) => [i + 1, ...known.map((name) => variable[name][i])]))];
    }),
    left > 0 ? h("p", { class: "hint" }, `And ${count(left, "variable")} more.`) : null,
  ];
}

/** The heaviest weights of the sums of a region. */
function sums(region, answer) {
  const heads = ["sum", ...answer.over, "weight"];
  return [
    h("h3", {}, region.label),
    h("p", { class: "hint" }, `${count(answer.sums, "sum")} with ${count(answer.num_weights, "weight")} in all. The heaviest:`),
    grid(heads, answer.heaviest.map((weight) => heads.map((head) => (head === "weight" ? weight.weight : weight[head] + 1)))),
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
