// Log-likelihoods by epoch: training and validation, with the last values in words.

import { line, scaleLinear } from "../vendor/d3.js";
import { h, replace, s } from "../dom.js";
import { number } from "../format.js";

const HEIGHT = 180;
const LEFT = 44;
const FOOT = 24;

export function lossCurve() {
  const svg = s("svg", { class: "curve", height: HEIGHT, role: "img", preserveAspectRatio: "none" });
  const said = h("p", { class: "legend" });
  const element = h("figure", { class: "curve-box" }, svg, h("figcaption", {}, said));
  let last = [[], [], null];

  function draw(train, valid, epochs) {
    last = [train, valid, epochs];
    const width = Math.max(200, element.clientWidth || 420);
    const known = [...train, ...valid].filter((value) => Number.isFinite(value));
    if (!known.length) return;
    const length = Math.max(train.length, valid.length, 2);
    // The first steps fall from far away and would flatten all the rest.
    const sorted = [...known].sort((a, b) => a - b);
    const low = sorted[Math.floor(sorted.length * (known.length > 20 ? 0.06 : 0))];
    const y = scaleLinear([low, sorted[sorted.length - 1]], [HEIGHT - FOOT, 8]).nice(4);
    const x = scaleLinear([1, length], [LEFT, width - 8]);
    const path = line().defined((value) => Number.isFinite(value)).x((_, i) => x(i + 1)).y((value) => Math.min(HEIGHT - FOOT, y(value)));
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.setAttribute("width", width);
    replace(svg,
      y.ticks(4).map((tick) => s("g", {}, s("line", { class: "rule", x1: LEFT, x2: width - 8, y1: y(tick), y2: y(tick) }), s("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, number(tick)))),
      x.ticks(Math.min(6, length)).filter(Number.isInteger).map((tick) => s("text", { x: x(tick), y: HEIGHT - 6, "text-anchor": "middle" }, tick)),
      s("path", { class: "train", d: path(train) ?? "" }),
      s("path", { class: "valid", d: path(valid) ?? "" }));
    const finish = (values) => number(values[values.length - 1], 0.001);
    const text = [];
    if (train.length) text.push(["train", `training ${finish(train)}`]);
    if (valid.length) text.push(["valid", `validation ${finish(valid)}`]);
    replace(said, text.map(([name, words]) => h("span", {}, h("i", { class: `key ${name}`, "aria-hidden": "true" }), words)), h("span", {}, "log-likelihood of a row, by epoch"));
    svg.setAttribute("aria-label", `Training curve, ${length} epochs: ${text.map(([, words]) => words).join(", ")}`);
  }

  new ResizeObserver(() => draw(...last)).observe(element);
  return { element, draw };
}
