// Columns: which tell most about which, as a graph, as a matrix and as a list of pairs.

import { api, newest } from "../server.js";
import { button, h, replace, segments } from "../dom.js";
import { informationGraph } from "../charts/graph.js";
import { informationMatrix } from "../charts/matrix.js";
import { showOnly, words } from "../evidence.js";
import { number } from "../format.js";
import { evidenceList, on, store, tellRefusal } from "../store.js";

export const columns = {
  id: "columns",
  title: "Columns",
  fits: (state) => state.kind === "table",
  code: () => ({ view: "columns", evidence: evidenceList() }),
  make,
};

let form = "graph";

/** All pairs, the most telling first. */
export function pairs(answer) {
  const found = [];
  answer.nats.forEach((line, i) => line.forEach((nats, j) => {
    if (i < j && nats !== null && nats !== undefined) {
      found.push({ a: answer.columns[i], b: answer.columns[j], nats, isExact: Boolean(answer.is_exact?.[i]?.[j]) });
    }
  }));
  return found.sort((one, other) => other.nats - one.nats);
}

function make() {
  const picture = h("div", { class: "picture" });
  const list = h("div", { class: "scroll tall" });
  const line = h("p", { class: "hint", role: "status" });
  let answer = null;

  function pick(a, b) {
    showOnly([a, b]);
    location.hash = "#explore";
  }

  function draw() {
    if (!answer) return;
    const all = pairs(answer);
    replace(picture, form === "graph" ? informationGraph(answer.columns, all, pick) : informationMatrix(answer, pick));
    const most = Math.max(1e-9, all[0]?.nats ?? 0);
    replace(list, h("table", { class: "grid pairs" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "pair"), h("th", { scope: "col" }, "nats"))),
      h("tbody", {}, all.slice(0, 60).map((pair) => h("tr", { data: { a: pair.a, b: pair.b, nats: pair.nats } },
        h("td", {}, button(`${pair.a} – ${pair.b}`, () => pick(pair.a, pair.b), { class: "quiet pair", title: "Explore these two" }),
          h("span", { class: "thin", style: { width: `${(100 * pair.nats) / most}%` } })),
        h("td", { class: "number" }, number(pair.nats, 0.001)))))));
  }

  const ask = newest(
    (evidence) => {
      line.textContent = "Counting …";
      return api.post("/api/information", { evidence });
    },
    (now, evidence) => {
      answer = now;
      const known = evidence.map((each) => `${each.column} ${words(store.column.get(each.column), each)}`).join(", ");
      line.textContent = known ? `Given ${known}.` : "Without evidence.";
      draw();
    },
    (error) => {
      line.textContent = "";
      tellRefusal(error);
    },
  );

  const element = h("div", { class: "view columns-view" },
    h("div", { class: "bar" },
      h("div", {}, h("h2", {}, "Which columns tell about which"), h("p", { class: "hint" }, "Mutual information: how many nats one column tells about another. Pick a pair to explore it.")),
      h("div", { class: "grow" }), segments("Drawn as", [["graph", "Graph"], ["matrix", "Matrix"]], form, (value) => { form = value; draw(); })),
    line,
    h("div", { class: "two wide" }, h("section", { class: "card", "aria-label": "Picture" }, picture), h("section", { class: "card", "aria-label": "Pairs" }, h("h2", {}, "Strongest pairs"), list)));
  const stops = [on("evidence", () => ask(evidenceList())), on("columns", () => ask(evidenceList()))];
  ask(evidenceList());
  return { element, stop: () => stops.forEach((stop) => stop()) };
}
