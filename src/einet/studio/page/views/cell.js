// One cell of a row: its value, how surprising it is, what would have been likelier, what fills it.

import { hasAxis, pixels, show, toPosition } from "../axis.js";
import { freshId, h, s } from "../dom.js";
import { number, percent } from "../format.js";

/** How surprising a cell is, from 0 to 3: how often it would be as far out as this, or further. */
export function heat(each) {
  if (each.is_missing || each.is_unknown) return "hole";
  if (each.tail === null || each.tail === undefined) return 3;
  return each.tail >= 0.1 ? 0 : each.tail >= 0.02 ? 1 : each.tail >= 0.002 ? 2 : 3;
}

const WORDS = { 0: "as expected", 1: "unusual", 2: "surprising", 3: "very surprising", hole: "missing" };

export function cellCard(column, each, edit, isOpen) {
  const level = heat(each);
  const id = freshId("cell");
  const value = input(column, each, id);
  value.addEventListener("change", () => edit(value.value));
  const fill = each.fill ?? {};
  const facts = [];
  if (level === "hole") {
    facts.push(h("p", { class: "fact" }, "filled with ", h("b", {}, show(column, fill.mode === undefined || hasAxis(column) ? fill.median ?? fill.mode : fill.mode)),
      fill.interval ? `, 90 % within ${show(column, fill.interval[0])} to ${show(column, fill.interval[1])}` : ""));
  } else if (each.likelier && (each.likelier.factor === null || each.likelier.factor > 1.005)) {
    facts.push(h("p", { class: "fact" }, "likelier: ", h("b", {}, show(column, each.likelier.value)), each.likelier.factor === null || (level === 0 && each.likelier.factor > 1000) ? "" : ` (${factor(each.likelier.factor)})`));
  } else facts.push(h("p", { class: "fact" }, "the likeliest value"));
  return h("article", { class: "cell", data: { column: column.name, heat: level, surprise: each.surprise ?? "" } },
    h("div", { class: "top" },
      h("label", { for: id, title: column.name }, column.name), value,
      h("span", { class: "word" }, each.is_unknown ? `${each.value} was never seen: taken as missing` : WORDS[level])),
    facts,
    h("details", { open: isOpen }, h("summary", {}, "given all other cells"),
      h("dl", { class: "numbers" },
        each.surprise === null || each.surprise === undefined ? null : line("surprise", `${number(each.surprise)} nats`),
        each.tail === null || each.tail === undefined ? null : line("as far out or further", percent(each.tail)),
        fill.mean === null || fill.mean === undefined ? null : line("mean", show(column, fill.mean)),
        fill.median === null || fill.median === undefined ? null : line("median", show(column, fill.median)),
        fill.interval ? line("90 % interval", `${show(column, fill.interval[0])} to ${show(column, fill.interval[1])}`) : null,
        fill.mode === null || fill.mode === undefined ? null : line("likeliest", show(column, fill.mode) + (each.likelier?.probability && !hasAxis(column) ? ` (${percent(each.likelier.probability)})` : ""))),
      draws(column, fill.draws ?? [], each)));
}

function line(name, text) {
  return [h("dt", {}, name), h("dd", {}, text)];
}

function factor(times) {
  return times > 1000 ? "more than 1000 times" : `${number(times)} times`;
}

function input(column, each, id) {
  const now = each.is_missing ? null : each.value;
  if (!hasAxis(column) && column.values?.length) {
    return h("select", { id, class: "value" }, h("option", { value: "" }, "missing"),
      column.values.map((value) => h("option", { value: String(value), selected: value === now }, show(column, value))));
  }
  const text = now === null || now === undefined ? "" : column.kind === "date" ? String(now).slice(0, 10) : String(now);
  return h("input", { id, class: "value", type: column.kind === "date" ? "date" : "text", inputmode: "decimal", placeholder: "missing", value: text });
}

/** Twenty draws: dots along the axis, or how often each state came. */
function draws(column, values, each) {
  if (!values.length) return null;
  if (!hasAxis(column)) {
    const counts = new Map();
    for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
    const text = [...counts].sort((a, b) => b[1] - a[1]).map(([value, times]) => `${show(column, value)} ×${times}`);
    return h("p", { class: "fact" }, `of ${values.length} draws: ${text.join(", ")}`);
  }
  const width = 240;
  const { scale, ticks } = pixels(column, width);
  const stack = new Map();
  const place = (value) => Math.max(3, Math.min(width - 3, scale(toPosition(column, value))));
  const dots = values.map((value) => {
    const slot = Math.round(place(value) / 5);
    const level = stack.get(slot) ?? 0;
    stack.set(slot, level + 1);
    return s("circle", { class: "draw", cx: place(value), cy: 40 - Math.min(level, 7) * 5, r: 2.2 });
  });
  const interval = each.fill?.interval;
  return s("svg", { class: "dots", viewBox: `0 0 ${width} 60`, role: "img", "aria-label": `${values.length} draws: ${values.map((value) => show(column, value)).join(", ")}` },
    interval ? s("rect", { class: "band", x: place(interval[0]), width: Math.max(1, place(interval[1]) - place(interval[0])), y: 2, height: 42 }) : null,
    s("line", { class: "ground", x1: 0, x2: width, y1: 44, y2: 44 }),
    dots,
    each.is_missing || each.value === null ? null : s("path", { class: "here", d: `M${place(each.value)},46l-4,7h8z` }),
    ticks.filter((tick) => tick.x > 12 && tick.x < width - 12).map((tick) => s("text", { x: tick.x, y: 58, "text-anchor": "middle" }, tick.text)));
}
