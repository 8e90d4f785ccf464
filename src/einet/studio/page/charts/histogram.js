// A column along an axis: data in grey, the prior as an outline, the posterior filled; brush or keys choose a range.

import { binRange, pixels, range, show, span, toPosition, toValue, withSpikes } from "../axis.js";
import { replace, s } from "../dom.js";
import { percent } from "../format.js";
import { forget, know, store } from "../store.js";

const FOOT = 20;
const TOP = 6;

/** Heights in proportion to densities: bins may differ in width. */
function heights(column, shares) {
  if (!shares) return null;
  const widths = column.edges.slice(1).map((edge, i) => Math.max(edge - column.edges[i], 1e-12));
  const typical = (column.edges[column.edges.length - 1] - column.edges[0]) / widths.length;
  return shares.map((share, i) => ((share ?? 0) * typical) / widths[i]);
}

/** The outline of bins as one path, closed at the ground. */
function steps(values, edges, x, y, ground) {
  if (!values) return "";
  let path = `M${x(edges[0]).toFixed(1)},${ground}`;
  values.forEach((value, i) => {
    const top = y(value).toFixed(1);
    path += `V${top}H${x(edges[i + 1]).toFixed(1)}`;
  });
  return `${path}V${ground}`;
}

export function histogram(column, height) {
  const ticks = s("g", { class: "ticks" });
  const behind = s("path", { class: "data" });
  const posterior = s("path", { class: "posterior" });
  const prior = s("path", { class: "prior" });
  const middle = s("line", { class: "middle", y1: TOP, y2: height - FOOT });
  const chosen = s("rect", { class: "chosen", y: 0, height: height - FOOT, width: 0 });
  const cursor = s("rect", { class: "cursor", y: 0, height: height - FOOT, width: 0 });
  const svg = s("svg", { class: "histogram", height: height, tabindex: 0, role: "img" },
    chosen, behind, posterior, prior, middle, cursor, ticks);
  const said = s("title", {});
  svg.prepend(said);

  let width = 0;
  let x = null;
  let shares = { posterior: null, prior: withSpikes(column, column.prior), data: withSpikes(column, column.data) };
  let at = null;
  let anchor = null;

  function draw() {
    if (!width) return;
    const ground = height - FOOT;
    const all = [heights(column, shares.data), heights(column, shares.prior), heights(column, shares.posterior)];
    const top = Math.max(1e-9, ...all.flatMap((values) => values ?? []));
    const y = (value) => ground - (value / top) * (ground - TOP);
    behind.setAttribute("d", steps(all[0], column.edges, x, y, ground));
    prior.setAttribute("d", steps(all[1], column.edges, x, y, ground));
    posterior.setAttribute("d", steps(all[2], column.edges, x, y, ground));
    drawChoice();
  }

  function drawChoice() {
    if (!width) return;
    const known = store.evidence.get(column.name);
    svg.classList.toggle("negated", Boolean(known?.negated));
    let [low, high] = [null, null];
    if (known?.op === "between") {
      low = toPosition(column, known.lower) ?? span(column)[0];
      high = toPosition(column, known.upper) ?? span(column)[1];
    } else if (known?.op === "is") low = high = toPosition(column, known.value);
    place(chosen, low, high, 2);
    place(cursor, at === null ? null : column.edges[Math.min(at, anchor ?? at)], at === null ? null : column.edges[Math.max(at, anchor ?? at) + 1], 0);
  }

  function place(rect, low, high, least) {
    if (low === null) return void rect.setAttribute("width", 0);
    const [from, to] = [Math.max(0, x(low)), Math.min(width, x(high))];
    rect.setAttribute("x", Math.max(0, from - (to - from < least ? least / 2 : 0)));
    rect.setAttribute("width", Math.max(least, to - from));
  }

  function resize(now) {
    if (now === width || now < 10) return;
    width = now;
    const axis = pixels(column, width);
    x = axis.scale;
    svg.setAttribute("width", width);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    replace(ticks,
      s("line", { class: "ground", x1: 0, x2: width, y1: height - FOOT, y2: height - FOOT }),
      axis.ticks.map((tick) => s("text", {
        x: Math.min(width - 2, Math.max(2, tick.x)), y: height - 5,
        "text-anchor": tick.x < 14 ? "start" : tick.x > width - 14 ? "end" : "middle",
      }, tick.text)));
    draw();
  }

  const toBin = (pixel) => {
    const value = x.invert(pixel);
    const found = column.edges.findIndex((edge, i) => i > 0 && value < edge);
    return Math.max(0, Math.min(column.edges.length - 2, (found < 0 ? column.edges.length - 1 : found) - 1));
  };

  // The brush: a press without a move chooses the bin below it, a drag the range that it crosses.
  let start = null;
  const along = (event) => Math.max(0, Math.min(width, event.clientX - svg.getBoundingClientRect().left));
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = along(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    if (start === null) return hover(along(event));
    const now = along(event);
    if (Math.abs(now - start) < 4) return undefined;
    svg.dataset.dragged = "yes";
    return know(range(column, x.invert(start), x.invert(now)));
  });
  svg.addEventListener("pointerup", (event) => {
    if (start === null) return;
    if (svg.dataset.dragged !== "yes") {
      const bin = toBin(along(event));
      const pick = binRange(column, bin);
      const known = store.evidence.get(column.name);
      if (known?.op === "between" && known.lower === pick.lower && known.upper === pick.upper) forget(column.name);
      else know(pick);
    }
    delete svg.dataset.dragged;
    start = null;
  });
  svg.addEventListener("pointercancel", () => {
    start = null;
    delete svg.dataset.dragged;
  });

  function hover(pixel) {
    const bin = toBin(pixel);
    said.textContent = sentence(bin);
  }

  function sentence(bin) {
    const pick = binRange(column, bin);
    const from = show(column, pick.lower ?? toValue(column, column.edges[bin]));
    const to = show(column, pick.upper ?? toValue(column, column.edges[bin + 1]));
    const parts = [`${from === to ? from : `${from} to ${to}`}: ${percent(shares.posterior?.[bin])}`];
    if (shares.prior) parts.push(`without evidence ${percent(shares.prior[bin])}`);
    if (shares.data) parts.push(`data ${percent(shares.data[bin])}`);
    return parts.join(", ");
  }

  // The same by keys: arrows move, with Shift they widen, Enter sets, Escape forgets.
  svg.addEventListener("keydown", (event) => {
    const last = column.edges.length - 2;
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -5, PageDown: 5, Home: -last - 1, End: last + 1 }[event.key];
    if (move !== undefined) {
      if (at === null) at = Math.max(0, Math.min(last, Math.floor(last / 2)));
      else {
        if (event.shiftKey) anchor ??= at;
        else anchor = null;
        at = Math.max(0, Math.min(last, at + move));
      }
      svg.dispatchEvent(new CustomEvent("said", { bubbles: true, detail: sentence(at) }));
    } else if ((event.key === "Enter" || event.key === " ") && at !== null) {
      know(binRange(column, Math.min(at, anchor ?? at), Math.max(at, anchor ?? at)));
    } else if (event.key === "Escape" || event.key === "Delete") {
      at = anchor = null;
      if (store.evidence.has(column.name)) forget(column.name);
    } else return;
    event.preventDefault();
    drawChoice();
  });
  svg.addEventListener("blur", () => {
    at = anchor = null;
    drawChoice();
  });

  return {
    element: svg,
    resize,
    drawn: () => shares.posterior,
    drawChoice,
    update(answer) {
      shares = { ...shares, posterior: withSpikes(column, answer) };
      const center = toPosition(column, answer.median);
      if (width && center !== null && Number.isFinite(center)) {
        middle.setAttribute("x1", x(center));
        middle.setAttribute("x2", x(center));
      }
      draw();
      svg.setAttribute("aria-label",
        `Histogram of ${column.name}: median ${show(column, answer.median)}, 90 % between ` +
        `${show(column, answer.interval?.[0])} and ${show(column, answer.interval?.[1])}. ` +
        "Arrow keys move over the bins, Shift widens, Enter sets a range.");
    },
    table() {
      return column.edges.slice(0, -1).map((edge, bin) => [
        `${show(column, toValue(column, edge))} – ${show(column, toValue(column, column.edges[bin + 1]))}`,
        shares.data?.[bin], shares.prior?.[bin], shares.posterior?.[bin],
      ]);
    },
  };
}
