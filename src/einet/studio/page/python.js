// "Copy as Python": the code of what is on the screen.

import { api } from "./server.js";
import { button, h, replace } from "./dom.js";
import { attempt } from "./store.js";

/** Ask for the code of a view, show it, and put it on the clipboard where that is allowed. */
export async function copyAsPython(wish) {
  const answer = await attempt(() => api.post("/api/code", wish));
  if (!answer) return;
  const dialog = document.getElementById("code");
  const code = h("pre", { tabindex: 0, "aria-label": "Python code" }, answer.python);
  const line = h("p", { class: "hint", role: "status" });

  async function copy() {
    try {
      await navigator.clipboard.writeText(answer.python);
      line.textContent = "Copied to the clipboard.";
    } catch {
      // Without leave to write there, the text is chosen, so that one key copies it.
      getSelection().selectAllChildren(code);
      line.textContent = "Press Ctrl+C to copy.";
    }
  }

  replace(dialog,
    h("h2", { id: "code-title" }, "As Python"), code,
    h("div", { class: "buttons" }, button("Copy", copy, { class: "primary" }), button("Close", () => dialog.close()), line));
  dialog.showModal();
  await copy();
}
