// A column state by state, or the spikes of a number: a row for each, which is a button.

import { exactly } from "../axis.js";
import { button, h } from "../dom.js";
import { percent } from "../format.js";
import { store } from "../store.js";

/**
 * Rows of states with their shares.
 *
 * `values` are the states, `shares` has lists of `prior` and `data`, `pick(value, isMore)` is called
 * for a click or Enter (with Shift or Ctrl: one more state), `chosen()` gives the states chosen.
 */
export function stateRows(column, values, shares, pick, chosen, prefix = "") {
  const rows = values.map((value) => {
    const fill = h("span", { class: "fill" });
    const behind = h("span", { class: "behind" });
    const before = h("span", { class: "before" });
    const share = h("span", { class: "share" });
    const name = `${prefix}${exactly(column, value)}`;
    const row = button([
      h("span", { class: "name", title: name }, name),
      h("span", { class: "track", "aria-hidden": "true" }, behind, fill, before),
      share,
    ], (event) => pick(value, event.shiftKey || event.ctrlKey || event.metaKey), { class: "state", data: { value: String(value) } });
    row.addEventListener("keydown", (event) => {
      if (event.shiftKey && (event.key === "Enter" || event.key === " ")) {
        event.preventDefault();
        return pick(value, true);
      }
      const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!move) return undefined;
      event.preventDefault();
      const all = [...row.parentElement.children];
      return all[all.indexOf(row) + move]?.focus();
    });
    return { value, row, fill, behind, before, share, name };
  });
  const element = h("div", { class: values.length < 5 && !prefix ? "states few" : "states", role: "group", "aria-label": `States of ${column.name}` }, rows.map(({ row }) => row));
  let posterior = shares.prior;

  function draw() {
    const picked = chosen();
    element.classList.toggle("negated", Boolean(store.evidence.get(column.name)?.negated));
    const most = Math.max(1e-9, ...[posterior, shares.prior, shares.data].flatMap((list) => list ?? []).map((share) => share ?? 0));
    // Full width is the largest share, but never so little that nothing looks likely.
    const whole = Math.max(most, 0.25);
    const width = (share) => `${Math.min(100, (100 * (share ?? 0)) / whole).toFixed(2)}%`;
    rows.forEach(({ value, row, fill, behind, before, share, name }, i) => {
      fill.style.width = width(posterior?.[i]);
      behind.style.width = width(shares.data?.[i]);
      before.style.left = width(shares.prior?.[i]);
      share.textContent = percent(posterior?.[i]);
      const isPicked = picked.has(value);
      row.setAttribute("aria-pressed", String(isPicked));
      row.setAttribute("aria-label",
        `${isPicked && element.classList.contains("negated") ? "not " : ""}${name}: ${percent(posterior?.[i])}, without evidence ${percent(shares.prior?.[i])}` +
        (shares.data ? `, data ${percent(shares.data[i])}` : ""));
      row.title = row.getAttribute("aria-label");
    });
  }

  draw();
  return {
    element,
    draw,
    update(list) {
      posterior = list;
      draw();
    },
    table() {
      return rows.map(({ name }, i) => [name, shares.data?.[i], shares.prior?.[i], posterior?.[i]]);
    },
  };
}
