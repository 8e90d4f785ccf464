// The page: which view is on, what the server says of itself, and files that are dropped anywhere.

import { api, fetchState, link, takeToken, watch } from "./server.js";
import { button, h, replace } from "./dom.js";
import { short } from "./format.js";
import { copyAsPython } from "./python.js";
import { attempt, emit, loadColumns, on, refresh, store, tell } from "./store.js";
import { startTheme } from "./theme.js";
import { columns } from "./views/columns.js";
import { data, openFile } from "./views/data.js";
import { explore } from "./views/explore.js";
import { images } from "./views/images.js";
import { model } from "./views/model.js";
import { row } from "./views/row.js";

const VIEWS = [data, explore, row, columns, images, model];
const place = (id) => document.getElementById(id);
let present = null;

function chosenView() {
  const fitting = VIEWS.filter((view) => view.fits(store.state));
  const wanted = fitting.find((view) => `#${view.id}` === location.hash);
  if (wanted) return wanted;
  return { table: explore, images, other: model }[store.state.kind] ?? data;
}

/** Draw the view that the address names; `isForced` draws it anew. */
function route(isForced = false) {
  if (!store.state) return;
  const view = chosenView();
  drawHead(view);
  if (present?.view === view && !isForced) return;
  present?.stop();
  const made = view.make();
  present = { view, stop: made.stop };
  replace(place("main"), h("h1", { class: "visually-hidden" }, view.title), made.element);
  document.title = `${view.title} · ${store.state.name ?? "einet studio"}`;
}

function drawHead(view) {
  place("file-name").textContent = store.state.name ? short(store.state.name, 40) : "";
  replace(place("views"), VIEWS.filter((each) => each.fits(store.state)).map((each) =>
    h("a", { href: `#${each.id}`, "aria-current": each === view ? "page" : null }, each.title)));
  place("copy").disabled = view.code() === null;
}

/** Another model is there, or none: read what belongs to it, and draw. */
async function opened() {
  store.state = await fetchState();
  if (store.state.kind === "table") await attempt(loadColumns);
  else {
    store.columns = [];
    store.column.clear();
    store.evidence.clear();
  }
  if (store.state.has_data) store.schema = await api.get("/api/schema").catch(() => null);
  // Other views hear of it themselves, and keep what was typed into them.
  route(present?.view === images);
  emit("model-changed");
  emit("state", store.state);
}

function drawBanner(status) {
  const banner = place("banner");
  banner.hidden = status === "here";
  const words = {
    gone: "The server does not answer. It may have been stopped; this page goes on as soon as it is back.",
    restarted: "The server was started anew and may hold another model.",
    refused: "The server was started anew, with another address. Open the address that it printed.",
  }[status];
  replace(banner, words ?? "", status === "restarted" ? button("Reload", () => location.reload()) : null);
}

function drawMessage(text, kind) {
  const box = place("message");
  clearTimeout(drawMessage.timer);
  box.hidden = !text;
  box.className = `message ${kind}`;
  box.setAttribute("role", kind === "error" ? "alert" : "status");
  replace(box, h("span", {}, text ?? ""), button("×", () => tell(null), { class: "quiet", "aria-label": "Close the message" }));
  if (text && kind === "note") drawMessage.timer = setTimeout(() => tell(null), 6000);
}

function takeFiles() {
  let depth = 0;
  const set = (change) => {
    depth = Math.max(0, depth + change);
    document.body.classList.toggle("dropping", depth > 0);
  };
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  addEventListener("dragenter", (event) => hasFiles(event) && set(1));
  addEventListener("dragleave", (event) => hasFiles(event) && set(-1));
  addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    set(-depth);
    const file = event.dataTransfer.files[0];
    if (!file) return;
    if (present?.view === images && file.type.startsWith("image/")) emit("picture-dropped", file);
    else openFile(file);
  });
}

async function start() {
  startTheme(place("theme"));
  on("message", drawMessage);
  link.listeners.add((status, before) => {
    drawBanner(status);
    if (status === "here" && before === "gone") refresh();
  });
  if (!takeToken()) {
    replace(place("main"), h("p", { class: "wait" }, "This page needs the whole address that the studio printed, with its token."));
    return;
  }
  try {
    store.state = await fetchState();
  } catch (error) {
    if (link.status === "here") tell(error.message);
    replace(place("main"), h("p", { class: "wait" }, "No answer from the studio."));
    if (link.status === "gone") setTimeout(() => location.reload(), 3000);
    return;
  }
  if (store.state.has_data) store.schema = await api.get("/api/schema").catch(() => null);
  if (store.state.kind === "table") await attempt(loadColumns);
  on("data-opened", async () => {
    history.replaceState(null, "", "#data");
    await opened();
  });
  on("model-opened", async () => {
    store.evidence.clear();
    await opened();
    location.hash = { table: "#explore", images: "#images" }[store.state.kind] ?? "#model";
  });
  on("trained", opened);
  addEventListener("hashchange", () => route());
  place("copy").addEventListener("click", () => {
    const wish = present?.view.code();
    if (wish) copyAsPython(wish);
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    // The address names the view, so it cannot name a place in it.
    event.preventDefault();
    place("main").focus();
  });
  takeFiles();
  route();
  watch((state) => {
    const isOther = state.kind !== store.state.kind || state.model_number !== store.state.model_number;
    if (link.status !== "here") return;
    if (isOther) opened();
    else {
      store.state = state;
      emit("state", state);
    }
  });
}

start();
