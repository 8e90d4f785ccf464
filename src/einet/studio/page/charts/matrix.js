// The same as a matrix: every pair is a cell, darker where more is told.

import { h, s } from "../dom.js";
import { number, short } from "../format.js";

export function informationMatrix(answer, pick) {
  const names = answer.columns.slice(0, 60);
  const size = names.length > 30 ? 12 : names.length > 16 ? 20 : 30;
  const left = 130;
  const top = 110;
  const edge = left + size * names.length;
  const most = Math.max(1e-9, ...answer.nats.flat().filter((nats) => nats !== null));
  const cells = names.flatMap((a, i) => names.map((b, j) => {
    const nats = answer.nats[i][j];
    if (i === j || nats === null || nats === undefined) return null;
    const text = `${a} and ${b}: ${number(nats, 0.001)} nats`;
    return s("rect", {
      class: "tile", x: left + j * size + 1, y: top + i * size + 1, width: size - 2, height: size - 2, rx: 3,
      "fill-opacity": 0.06 + 0.94 * Math.sqrt(nats / most), role: "button", "aria-label": text, on: { click: () => pick(a, b) },
    }, s("title", {}, text));
  }));
  const labels = names.flatMap((name, i) => [
    s("text", { x: left - 6, y: top + i * size + size / 2 + 4, "text-anchor": "end" }, short(name, 17)),
    s("text", { transform: `translate(${left + i * size + size / 2 + 4},${top - 6}) rotate(-50)` }, short(name, 17)),
  ]);
  return h("div", { class: "scroll" },
    s("svg", { class: "matrix", viewBox: `0 0 ${edge + 70} ${top + size * names.length + 4}`, width: edge + 70, role: "img", "aria-label": "Mutual information of all pairs; the list beside it has the numbers" }, labels, cells),
    answer.columns.length > names.length ? h("p", { class: "hint" }, `The first ${names.length} of ${answer.columns.length} columns are drawn.`) : null);
}
