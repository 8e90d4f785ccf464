// A picture and a brush: which pixels are covered, by mouse, by touch or by keys.

import { button, field, h } from "../dom.js";

/** A canvas for a picture of this many pixels; `paint` is called with what is covered, as a png. */
export function painter(height, width, paint) {
  const scale = Math.max(1, Math.floor(336 / Math.max(height, width)));
  const covered = new Uint8Array(height * width);
  const canvas = h("canvas", { class: "painter", width: width * scale, height: height * scale, tabindex: 0, role: "img", "aria-label": "Picture to paint on. Arrow keys move the brush, Space covers, Backspace uncovers." });
  const context = canvas.getContext("2d");
  const size = h("input", { type: "range", min: 1, max: Math.max(2, Math.round(Math.max(height, width) / 3)), value: String(Math.max(2, Math.round(Math.max(height, width) / 7))) });
  const erase = button("Erase", () => setErasing(!isErasing), { "aria-pressed": "false" });
  let picture = null;
  let isErasing = false;
  let at = null;
  let isDown = false;

  function setErasing(value) {
    isErasing = value;
    erase.setAttribute("aria-pressed", String(value));
  }

  function draw() {
    context.imageSmoothingEnabled = false;
    context.clearRect(0, 0, canvas.width, canvas.height);
    if (picture) context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    for (let y = 0; y < height; y += 1) {
      for (let x = 0; x < width; x += 1) {
        if (!covered[y * width + x]) continue;
        // Two tones, so that cover is told apart from any picture without its colour.
        context.fillStyle = (x + y) % 2 ? "#e0a244" : "#c98a2b";
        context.fillRect(x * scale, y * scale, scale, scale);
      }
    }
    if (at) {
      context.strokeStyle = "#fff";
      context.lineWidth = 2;
      context.beginPath();
      context.arc((at[0] + 0.5) * scale, (at[1] + 0.5) * scale, (Number(size.value) * scale) / 2, 0, 2 * Math.PI);
      context.stroke();
      context.strokeStyle = "#000";
      context.lineWidth = 1;
      context.stroke();
    }
    canvas.dataset.covered = String(covered.reduce((sum, value) => sum + value, 0));
  }

  /** Cover, or uncover, a disc around a pixel. */
  function dab(x, y, value) {
    const reach = Number(size.value) / 2;
    for (let j = Math.max(0, Math.floor(y - reach)); j <= Math.min(height - 1, Math.ceil(y + reach)); j += 1) {
      for (let i = Math.max(0, Math.floor(x - reach)); i <= Math.min(width - 1, Math.ceil(x + reach)); i += 1) {
        if ((i - x) ** 2 + (j - y) ** 2 <= reach ** 2) covered[j * width + i] = value;
      }
    }
  }

  function stroke(from, to, value) {
    const steps = Math.max(1, Math.ceil(2 * Math.hypot(to[0] - from[0], to[1] - from[1])));
    for (let k = 0; k <= steps; k += 1) dab(from[0] + ((to[0] - from[0]) * k) / steps, from[1] + ((to[1] - from[1]) * k) / steps, value);
  }

  function changed() {
    draw();
    const mask = document.createElement("canvas");
    mask.width = width;
    mask.height = height;
    const pixels = new ImageData(width, height);
    covered.forEach((value, i) => pixels.data.fill(value ? 255 : 0, 4 * i, 4 * i + 4));
    mask.getContext("2d").putImageData(pixels, 0, 0);
    paint(mask.toDataURL("image/png"));
  }

  function fill(rule) {
    for (let y = 0; y < height; y += 1) for (let x = 0; x < width; x += 1) covered[y * width + x] = rule(x, y) ? 1 : 0;
    changed();
  }

  const pixel = (event) => {
    const box = canvas.getBoundingClientRect();
    return [Math.floor(((event.clientX - box.left) / box.width) * width), Math.floor(((event.clientY - box.top) / box.height) * height)];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    event.preventDefault();
    canvas.focus();
    canvas.setPointerCapture(event.pointerId);
    isDown = true;
    at = pixel(event);
    stroke(at, at, isErasing ? 0 : 1);
    changed();
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = pixel(event);
    if (isDown) {
      stroke(at ?? now, now, isErasing ? 0 : 1);
      at = now;
      changed();
    } else {
      at = now;
      draw();
    }
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { isDown = false; });
  canvas.addEventListener("pointerleave", () => {
    if (isDown) return;
    at = null;
    draw();
  });
  canvas.addEventListener("blur", () => {
    at = null;
    draw();
  });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (move) {
      const before = at ?? [Math.floor(width / 2), Math.floor(height / 2)];
      at = at ? [Math.max(0, Math.min(width - 1, before[0] + move[0])), Math.max(0, Math.min(height - 1, before[1] + move[1]))] : before;
      draw();
    } else if (event.key === " " || event.key === "Enter" || event.key === "Backspace") {
      at ??= [Math.floor(width / 2), Math.floor(height / 2)];
      dab(at[0], at[1], event.key === "Backspace" ? 0 : 1);
      changed();
    } else return;
    event.preventDefault();
  });

  const presets = [
    ["Left half", (x) => x < width / 2], ["Right half", (x) => x >= width / 2],
    ["Top half", (_, y) => y < height / 2], ["Bottom half", (_, y) => y >= height / 2],
    ["Uncover all", () => false],
  ];
  const element = h("div", { class: "paint-box" }, canvas,
    h("div", { class: "row-form" }, field("brush", size), erase),
    h("div", { class: "buttons" }, presets.map(([text, rule]) => button(text, () => fill(rule), { class: "quiet" }))));
  let isFirst = true;

  return {
    element,
    changed,
    async load(source) {
      const image = new Image();
      image.src = source;
      await image.decode();
      picture = image;
      // A first picture comes with its right half covered, so that there is something to see.
      if (isFirst) for (let i = 0; i < covered.length; i += 1) covered[i] = i % width >= width / 2 ? 1 : 0;
      isFirst = false;
    },
  };
}
