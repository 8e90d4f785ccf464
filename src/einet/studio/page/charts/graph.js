// A graph of columns: the nearer and the thicker the line, the more one tells about the other.

import { forceCollide, forceLink, forceManyBody, forceSimulation, forceX, forceY } from "../vendor/d3.js";
import { h, s } from "../dom.js";
import { number, short } from "../format.js";

const WIDTH = 640;
const HEIGHT = 460;

/** Enough lines to tie the columns together, and no more than the eye can follow. */
function strongest(names, pairs) {
  const group = new Map(names.map((name) => [name, name]));
  const root = (name) => (group.get(name) === name ? name : root(group.get(name)));
  const kept = new Set();
  const least = (pairs[0]?.nats ?? 0) * 0.02;
  for (const pair of pairs) {
    const [a, b] = [root(pair.a), root(pair.b)];
    if (a !== b && pair.nats > least) {
      group.set(a, b);
      kept.add(pair);
    }
  }
  for (const pair of pairs) {
    if (kept.size >= names.length * 2) break;
    if (pair.nats > least * 4) kept.add(pair);
  }
  return [...kept];
}

export function informationGraph(names, pairs, pick) {
  const shown = names.slice(0, 60);
  const isShown = new Set(shown);
  const kept = strongest(shown, pairs.filter((pair) => isShown.has(pair.a) && isShown.has(pair.b)));
  const most = Math.max(1e-9, kept[0]?.nats ?? 0);
  const nodes = shown.map((name, i) => ({
    id: name,
    x: WIDTH / 2 + 160 * Math.cos((i / shown.length) * 2 * Math.PI),
    y: HEIGHT / 2 + 130 * Math.sin((i / shown.length) * 2 * Math.PI),
    half: Math.min(110, 7 * Math.min(18, name.length) + 22) / 2,
  }));
  const links = kept.map((pair) => ({ source: pair.a, target: pair.b, pair }));
  const simulation = forceSimulation(nodes)
    .force("link", forceLink(links).id((node) => node.id).distance((each) => 60 + 90 * (1 - each.pair.nats / most)).strength((each) => 0.2 + 0.6 * (each.pair.nats / most)))
    .force("apart", forceManyBody().strength(-420))
    .force("room", forceCollide((node) => node.half + 6))
    .force("x", forceX(WIDTH / 2).strength(0.06))
    .force("y", forceY(HEIGHT / 2).strength(0.11))
    .stop();
  simulation.tick(300);
  // The picture is as large as its box, whatever the forces left.
  const stretch = (name, low, high) => {
    const values = nodes.map((node) => node[name]);
    const [least, greatest] = [Math.min(...values), Math.max(...values)];
    for (const node of nodes) node[name] = greatest > least ? low + ((node[name] - least) / (greatest - least)) * (high - low) : (low + high) / 2;
  };
  stretch("x", 62, WIDTH - 62);
  stretch("y", 20, HEIGHT - 20);

  let first = null;
  const circles = new Map();

  function choose(name) {
    if (first === name) first = null;
    else if (first === null) first = name;
    else return pick(first, name);
    for (const [id, element] of circles) element.setAttribute("aria-pressed", String(id === first));
    for (const { element, pair } of lines) element.classList.toggle("dim", first !== null && pair.a !== first && pair.b !== first);
    return undefined;
  }

  const onKey = (action) => (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    action();
  };
  const lines = links.map(({ source, target, pair }) => {
    const go = () => pick(pair.a, pair.b);
    const text = `${pair.a} and ${pair.b}: ${number(pair.nats, 0.001)} nats`;
    const element = s("g", { class: "link", role: "button", "aria-label": text, on: { click: go } },
      s("title", {}, text),
      s("line", { class: "touch", x1: source.x, y1: source.y, x2: target.x, y2: target.y }),
      s("line", { class: "seen", x1: source.x, y1: source.y, x2: target.x, y2: target.y, "stroke-width": 1 + 7 * (pair.nats / most), "stroke-opacity": 0.3 + 0.6 * (pair.nats / most) }));
    return { element, pair };
  });
  const dots = nodes.map((node) => {
    const element = s("g", {
      class: "node", transform: `translate(${node.x},${node.y})`, tabindex: 0, role: "button", "aria-pressed": "false",
      "aria-label": `Column ${node.id}: pick two columns to explore them`, on: { click: () => choose(node.id), keydown: onKey(() => choose(node.id)) },
    },
    s("rect", { x: -node.half, y: -13, width: 2 * node.half, height: 26, rx: 13 }),
    s("text", { "text-anchor": "middle", y: 4.5 }, short(node.id, 14)), s("title", {}, node.id));
    circles.set(node.id, element);
    return element;
  });
  return h("div", {},
    s("svg", { class: "graph", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": "Graph of columns" }, lines.map(({ element }) => element), dots),
    names.length > shown.length ? h("p", { class: "hint" }, `The first ${shown.length} of ${names.length} columns are drawn.`) : null);
}
