// Data: drop a file, put the kinds of its columns right, train, and watch the curve.

import { api } from "../server.js";
import { lossCurve } from "../charts/curve.js";
import { button, field, h, replace, saveAs } from "../dom.js";
import { bytes, cell, count, number, short } from "../format.js";
import { attempt, emit, on, store, tell } from "../store.js";

export const data = {
  id: "data",
  title: "Data",
  fits: () => true,
  code: () => (store.schema ? { view: "training", columns: { ...store.kinds } } : null),
  make,
};

/** Send a file to the server, as a table or as a model, by its name. */
export async function openFile(file) {
  const limit = store.state?.limits?.max_bytes;
  if (limit && file.size > limit) {
    tell(`${short(file.name, 60)} has ${bytes(file.size)}; the studio takes files of up to ${bytes(limit)}.`);
    return;
  }
  const isModel = /\.einet$/i.test(file.name);
  tell(`Reading ${short(file.name, 60)} …`, "note");
  const path = isModel ? "/api/model" : "/api/data";
  const answer = await attempt(() => api.upload(`${path}?name=${encodeURIComponent(file.name)}`, file));
  if (answer === undefined) return;
  tell(null);
  if (!isModel) {
    store.schema = answer;
    store.kinds = {};
  }
  emit(isModel ? "model-opened" : "data-opened");
}

function make() {
  const schema = h("div", { class: "schema" });
  const training = trainingCard();
  const pick = h("input", { type: "file", accept: ".csv,.gz,.parquet,.pq,.einet,.txt,.tsv", class: "visually-hidden", id: "file" });
  pick.addEventListener("change", async () => {
    if (pick.files[0]) await openFile(pick.files[0]);
    pick.value = "";
  });
  const zone = h("div", { class: "dropzone" },
    h("p", { class: "big" }, "Drop a csv or Parquet file here, or a saved model (.einet)"),
    h("p", {}, pick, h("label", { for: "file", class: "button primary" }, "Choose a file")),
    h("p", { class: "hint" }, "Nothing leaves this computer."));

  async function draw() {
    zone.classList.toggle("small", Boolean(store.schema));
    if (!store.schema) return replace(schema);
    return replace(schema, schemaTable(store.schema));
  }

  const element = h("div", { class: "view data" }, zone, h("div", { class: "two" }, schema, training.element));
  const stops = [on("data-opened", draw), training.stop];
  draw();
  return { element, stop: () => stops.forEach((stop) => stop()) };
}

function schemaTable(schema) {
  store.kinds ??= {};
  const rows = schema.columns.map((column) => {
    const chosen = store.kinds[column.name] ?? column.kind;
    const kinds = [...new Set([column.kind, ...(column.kinds ?? [])])];
    const select = h("select", { "aria-label": `Kind of ${column.name}`, on: { change: () => { store.kinds[column.name] = select.value; } } },
      kinds.map((kind) => h("option", { value: kind, selected: kind === chosen }, kind)));
    const share = schema.rows ? column.missing / schema.rows : 0;
    return h("tr", { data: { column: column.name } },
      h("th", { scope: "row", title: column.name }, column.name),
      h("td", {}, select),
      h("td", { class: "number" }, column.missing ? [number(column.missing), share ? h("small", {}, ` ${Math.max(1, Math.round(share * 100))} %`) : ""] : "–"),
      h("td", { class: "examples", title: column.description ?? "" }, (column.examples ?? []).slice(0, 5).map((value) => h("span", {}, short(cell(value), 18)))));
  });
  return h("section", { class: "card", "aria-label": "Columns of the data" },
    h("h2", {}, short(schema.name, 40), h("small", {}, ` ${count(schema.rows, "row")}, ${count(schema.columns.length, "column")}`)),
    (schema.warnings ?? []).map((warning) => h("p", { class: "warning" }, warning)),
    h("div", { class: "scroll" }, h("table", { class: "grid" },
      h("thead", {}, h("tr", {}, ["column", "kind", "missing", "examples"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, rows))));
}

function trainingCard() {
  const seconds = h("input", { type: "number", min: 1, placeholder: "as needed", size: 8 });
  const epochs = h("input", { type: "number", min: 1, placeholder: "as needed", size: 8 });
  const sums = h("input", { type: "number", min: 1, placeholder: "as needed", size: 8 });
  const start = button("Train a model", () => train(), { class: "primary" });
  const stop = button("Stop", () => attempt(() => api.remove("/api/training").then(draw), stop));
  const line = h("p", { class: "status" });
  // Read aloud when something ends or begins, not four times a second.
  const said = h("p", { class: "visually-hidden", role: "status", "aria-live": "polite" });
  const curve = lossCurve();
  const next = button("Explore the model", () => { location.hash = "#explore"; }, { class: "primary" });
  const save = button("Save the model", (event) => attempt(async () => {
    const blob = await api.file("GET", "/api/model/file");
    saveAs(blob, `${(store.state.name ?? "model").replace(/\.[^.]+$/, "")}.einet`);
  }, event.currentTarget));
  const done = h("p", { class: "buttons", hidden: true }, next, save);
  const element = h("section", { class: "card training", "aria-label": "Training", hidden: true },
    h("h2", {}, "Training"),
    h("details", {}, h("summary", {}, "Settings"),
      h("div", { class: "row-form" }, field("seconds at most", seconds), field("epochs", epochs), field("sums (K)", sums))),
    h("p", { class: "buttons" }, start, stop), line, said, curve.element, done);

  let timer = null;
  let isRunning = false;

  async function train() {
    const wish = { columns: { ...store.kinds } };
    for (const [name, input] of [["seconds", seconds], ["epochs", epochs], ["num_sums", sums]]) {
      if (input.value !== "") wish[name] = Number(input.value);
    }
    const answer = await attempt(() => api.post("/api/training", wish), start);
    if (answer !== undefined) {
      isRunning = true;
      // The view that is on stays, also once there is a model to explore.
      history.replaceState(null, "", "#data");
      tell(null);
      poll();
    }
  }

  async function poll() {
    clearTimeout(timer);
    let now;
    try {
      now = await api.get("/api/training");
    } catch {
      timer = setTimeout(poll, 1000);
      return;
    }
    draw(now);
    if (now.state === "running") {
      isRunning = true;
      timer = setTimeout(poll, 250);
    } else if (isRunning) {
      isRunning = false;
      if (now.state === "failed") tell(now.message ?? "The training failed.");
      else emit("trained");
    }
  }

  function draw(now) {
    const state = now?.state ?? "idle";
    start.disabled = state === "running";
    stop.hidden = state !== "running";
    element.hidden = !store.schema && state === "idle";
    start.hidden = !store.schema;
    curve.element.hidden = !(now?.train?.length || now?.valid?.length);
    curve.draw(now?.train ?? [], now?.valid ?? [], now?.epochs);
    const time = now?.seconds === undefined || now.seconds === null ? "" : ` · ${now.seconds.toFixed(1)} s`;
    const epoch = `epoch ${now?.epoch ?? 0}${now?.epochs ? ` of at most ${now.epochs}` : ""}`;
    const word = { idle: "Not trained yet.", running: now?.epoch ? `Training: ${epoch}${time}` : `Preparing${time}`, done: `Trained: ${epoch}${time}`, stopped: `Stopped: ${epoch}${time}`, failed: now?.message ?? "The training failed." }[state];
    line.textContent = word ?? state;
    if (line.dataset.state !== state) said.textContent = state === "running" ? "Training began." : line.textContent;
    line.dataset.state = state;
    done.hidden = !(state === "done" || state === "stopped") || store.state?.kind !== "table";
  }

  const stops = [on("data-opened", () => { isRunning = false; poll(); }), on("state", () => { if (!isRunning) poll(); })];
  poll();
  return { element, stop: () => { clearTimeout(timer); stops.forEach((each) => each()); } };
}
