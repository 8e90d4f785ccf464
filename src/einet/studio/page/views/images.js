// Images: samples of the model; a picture to paint over, and what it says of the covered part.

import { api, newest } from "../server.js";
import { painter } from "../charts/painter.js";
import { button, field, h, replace, saveAs, segments } from "../dom.js";
import { number } from "../format.js";
import { attempt, on, tell, tellRefusal } from "../store.js";

let last = { inpaint: true, draws: 8, seed: 0 };

export const images = {
  id: "images",
  title: "Images",
  fits: (state) => state.kind === "images",
  code: () => ({ view: "images", ...last }),
  make,
};

function make() {
  const element = h("div", { class: "view images" });
  let stops = [];
  attempt(async () => {
    const info = await api.get("/api/images");
    const [height, width] = info.shape;
    const work = inpainting(info, height, width);
    replace(element, work.element, samples(info));
    stops = work.stops;
  });
  return { element, stop: () => stops.forEach((stop) => stop()) };
}

function picture(source, label) {
  return h("img", { src: source, alt: label, class: "pixels", draggable: "false" });
}

function samples() {
  const grid = h("div", { class: "samples" });
  let seed = 0;
  let leaves = "mean";
  const draw = newest(
    (wish) => api.post("/api/images/samples", wish),
    (answer) => replace(grid, answer.images.map((source, i) => picture(source, `Sample ${i + 1}`))),
    tellRefusal,
  );
  const ask = () => draw({ n: 24, seed, leaves });
  ask();
  return h("section", { class: "card", "aria-label": "Samples" },
    h("div", { class: "bar" }, h("h2", {}, "Samples"), h("p", { class: "hint" }, "Pictures that the model draws by itself."), h("div", { class: "grow" }),
      segments("Leaves", [["mean", "smooth"], ["sample", "with noise"]], leaves, (value) => { leaves = value; ask(); }),
      button("Draw again", () => { seed += 1; ask(); }, { class: "again" })), grid);
}

function inpainting(info, height, width) {
  const line = h("p", { class: "hint", role: "status", "aria-live": "polite" });
  const mean = resultBox("Exact mean", "mean");
  const deviation = resultBox("Deviation", "deviation");
  const draw = resultBox("Draw", "draw");
  const strip = h("div", { class: "strip", role: "group", "aria-label": "All draws" });
  const slider = h("input", { type: "range", min: 1, max: 8, value: "1", "aria-label": "Which draw" });
  let draws = [];
  let image = null;
  let seed = 0;

  function showDraw(i) {
    slider.value = String(i + 1);
    draw.set(draws[i], `Draw ${i + 1} of ${draws.length}`);
    [...strip.children].forEach((child, j) => child.setAttribute("aria-pressed", String(i === j)));
  }

  slider.addEventListener("input", () => showDraw(Number(slider.value) - 1));

  const ask = newest(
    (wish) => api.post("/api/images/inpaint", wish),
    (answer, wish) => {
      mean.set(answer.mean, "Exact mean of the covered part");
      deviation.set(answer.deviation, "Deviation of the covered part");
      draws = answer.draws;
      slider.max = String(draws.length);
      replace(strip, draws.map((source, i) => h("button", { type: "button", "aria-label": `Draw ${i + 1}`, "aria-pressed": "false", on: { click: () => showDraw(i) } }, picture(source, ""))));
      showDraw(Math.min(Number(slider.value), draws.length) - 1);
      line.textContent = `log p(visible) = ${number(answer.log_evidence)} · answered in ${Math.round(answer.milliseconds)} ms`;
      element.dataset.log = String(answer.log_evidence);
      element.dataset.seed = String(wish.seed);
      performance.mark("inpaint-drawn");
    },
    tellRefusal,
  );

  let cover = null;
  const canvas = painter(height, width, (covered) => {
    cover = covered;
    if (!image) return;
    last = { inpaint: true, draws: 8, seed };
    performance.mark("inpaint-start");
    ask({ image, covered, draws: 8, seed });
  });

  async function load(source) {
    image = source;
    await canvas.load(source);
    canvas.changed();
  }

  const index = h("input", { type: "number", min: 1, max: Math.max(1, info.tests ?? 1), value: "1", size: 6 });
  const test = () => attempt(async () => {
    const i = Math.round(Number(index.value));
    if (!(i >= 1 && i <= info.tests)) return tell(`There are test images 1 to ${info.tests}.`);
    return load((await api.get(`/api/images/test?index=${i - 1}`)).image);
  });
  index.addEventListener("change", test);
  const turn = (by) => () => {
    index.value = String(1 + ((Number(index.value) - 1 + by + info.tests) % info.tests));
    test();
  };

  async function own(file) {
    const answer = await attempt(() => api.upload("/api/images/picture", file));
    if (answer) {
      tell(null);
      await load(answer.image);
    }
  }

  const pick = h("input", { type: "file", accept: "image/*", class: "visually-hidden", id: "picture" });
  pick.addEventListener("change", () => pick.files[0] && own(pick.files[0]));
  const paste = (event) => {
    const file = [...(event.clipboardData?.files ?? [])].find((each) => each.type.startsWith("image/"));
    if (file) own(file);
  };
  document.addEventListener("paste", paste);

  const element = h("section", { class: "card inpaint", "aria-label": "Inpainting" },
    h("div", { class: "bar" }, h("h2", {}, "Cover a part"), h("p", { class: "hint" }, "Paint over the picture. The model answers with all that could be there.")),
    h("div", { class: "sources" },
      info.has_tests ? [field("test image", index), button("←", turn(-1), { "aria-label": "Previous test image" }), button("→", turn(1), { "aria-label": "Next test image" })] : null,
      pick, h("label", { for: "picture", class: "button" }, "Own picture"), h("span", { class: "hint" }, "or drop or paste one")),
    h("div", { class: "bench" }, canvas.element,
      h("div", { class: "results" }, mean.element, deviation.element,
        h("div", { class: "draws" }, draw.element, slider), strip,
        h("div", { class: "buttons" }, button("Other draws", () => { seed += 1; canvas.changed(); }), line),
        h("p", { class: "hint buttons" }, "For the Python code, save", save("image.png", () => image), "and", save("covered.png", () => cover)))));
  if (info.has_tests) test();
  else attempt(async () => load((await api.post("/api/images/samples", { n: 1, seed: 0, leaves: "mean" })).images[0]));
  return { element, stops: [() => document.removeEventListener("paste", paste), on("picture-dropped", own)] };
}

/** A button that saves a picture of the page as a file. */
function save(name, source) {
  return button(name, () => {
    if (source()) saveAs(blobOf(source()), name);
  }, { class: "quiet" });
}

/** The bytes behind an address of the kind data:image/png;base64. */
function blobOf(address) {
  const text = atob(address.split(",", 2)[1]);
  return new Blob([Uint8Array.from(text, (character) => character.charCodeAt(0))], { type: "image/png" });
}

function resultBox(title, name) {
  const image = h("img", { class: "pixels", alt: title, draggable: "false" });
  const element = h("figure", { class: `result ${name}` }, image, h("figcaption", {}, title));
  return {
    element,
    set(source, label) {
      image.src = source;
      image.alt = label;
    },
  };
}
