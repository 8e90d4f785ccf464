// The region graph, unfolded as far as one looks: circles are regions, squares split them.

import { hierarchy, linkHorizontal, tree } from "../vendor/d3.js";
import { api } from "../server.js";
import { h, replace, s } from "../dom.js";
import { count, number, percent, short } from "../format.js";
import { attempt } from "../store.js";

const ROW = 34;
const DEPTH = 120;

function label(region) {
  if (region.kind === "mixture") return count(region.sums, "model");
  const { scope: names, count: size } = region;
  const weight = region.weight === undefined ? "" : `${percent(region.weight)}: `;
  return weight + (size > names.length || size > 3 ? `${short(names.slice(0, 2).join(", "), 22)} … (${number(size)})` : short(names.join(", "), 30));
}

export function regionTree(choose) {
  const box = h("div", { class: "scroll tree", role: "tree", "aria-label": "Region graph" });
  let root = null;
  let chosen = null;

  const fromRegion = (region) => ({ type: "region", region: { ...region, label: label(region) }, isOpen: false, children: null });

  async function load(node) {
    const id = node.region.id;
    const answer = await attempt(() => api.get(`/api/model/regions${id === undefined ? "" : `?root=${encodeURIComponent(id)}`}`));
    if (!answer) return false;
    node.region = { ...answer.region, label: label(answer.region) };
    node.left = answer.num_partitions - answer.partitions.length;
    if (node.region.kind === "mixture") {
      node.children = answer.partitions.flatMap((partition) => partition.children.map(fromRegion));
      return true;
    }
    // Of many splits the first two are open, so that the picture stays one.
    node.children = answer.partitions.map((partition, i) => ({
      type: "partition",
      isOpen: i < 2,
      left: partition.num_children - partition.children.length,
      children: partition.children.map(fromRegion),
    }));
    return true;
  }

  async function toggle(node) {
    if (node.type === "partition") node.isOpen = !node.isOpen;
    else {
      chosen = node;
      choose(node.region);
      if (node.region.kind === "leaf") return draw(node);
      if (!node.children && !(await load(node))) return undefined;
      node.isOpen = !node.isOpen;
    }
    return draw(node);
  }

  function draw(focus) {
    const laid = tree().nodeSize([ROW, DEPTH])(hierarchy(root, (node) => (node.isOpen && node.children?.length ? node.children : null)));
    const all = laid.descendants();
    const low = Math.min(...all.map((node) => node.x));
    const high = Math.max(...all.map((node) => node.x));
    const width = Math.max(...all.map((node) => node.y)) + 260;
    const height = high - low + 2 * ROW;
    const path = linkHorizontal().x((node) => node.y + 16).y((node) => node.x - low + ROW);
    const nodes = all.map((each) => {
      const node = each.data;
      const isLeaf = node.type === "region" && node.region.kind === "leaf";
      const text = node.type === "partition" ? "" : node.region.label;
      const element = s("g", {
        class: `tree-node ${node.type}${isLeaf ? " leaf" : ""}${node === chosen ? " chosen" : ""}`,
        transform: `translate(${each.y + 16},${each.x - low + ROW})`, tabindex: node.type === "region" ? 0 : -1, role: "treeitem",
        "aria-level": each.depth + 1, "aria-expanded": isLeaf ? null : String(Boolean(node.isOpen)),
        "aria-label": node.type === "partition" ? `Split into ${node.children.length}` : `Region of ${text}, ${isLeaf ? "leaf" : `${node.region.sums ?? ""} sums`}`,
        on: {
          click: () => toggle(node),
          keydown: (event) => {
            if (event.key !== "Enter" && event.key !== " ") return;
            event.preventDefault();
            toggle(node);
          },
        },
      },
      node.type === "partition" ? s("rect", { x: -5, y: -5, width: 10, height: 10, rx: 2 }) : s("circle", { r: isLeaf ? 5 : 8 }),
      text ? s("text", node.isOpen ? { x: -8, y: -13 } : { x: 14, y: 4 }, text) : null,
      node.type === "partition" && !node.isOpen ? s("text", { x: 12, y: 4 }, count(node.children.length + node.left, "region")) : null,
      node.isOpen && node.left > 0 ? s("text", { x: 10, y: 20 }, `and ${number(node.left)} more`) : null,
      node.type === "region" && !isLeaf && !node.isOpen ? s("text", { class: "plus", "text-anchor": "middle", y: 4 }, "+") : null,
      s("title", {}, text));
      return { node, element };
    });
    replace(box, s("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, laid.links().map((each) => s("path", { class: "edge", d: path(each) })), nodes.map(({ element }) => element)));
    if (!focus) box.scrollTop = laid.x - low + ROW - box.clientHeight / 2;
    else nodes.find(({ node }) => node === focus)?.element.focus({ preventScroll: true });
  }

  root = { type: "region", region: {}, isOpen: false, children: null };
  load(root).then((isThere) => {
    if (!isThere) return;
    root.isOpen = true;
    draw();
  });
  return { element: box };
}
