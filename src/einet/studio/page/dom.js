// Elements, made from data as text: nothing here ever parses html.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "style") {
      // One property at a time: the page's policy refuses style attributes.
      for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
    } else if (name === "data") {
      Object.assign(element.dataset, value);
    } else if (name === "value" || name === "checked" || name === "disabled" || name === "selected") {
      element[name] = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(element, children);
  return element;
}

/** Add children, which are elements, texts, lists of them or nothing. */
export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** An html element: h("p", {class: "note"}, "text", other). */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for svg. */
export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Put these children in place of all that an element holds. */
export function replace(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

let lastId = 0;

/** A name that no other element has, for labels. */
export function freshId(prefix = "e") {
  lastId += 1;
  return `${prefix}-${lastId}`;
}

/** A labelled control: the label above, the control below. */
export function field(label, control, note) {
  control.id = control.id || freshId("field");
  const hint = note ? h("small", { id: `${control.id}-note` }, note) : null;
  if (hint) control.setAttribute("aria-describedby", hint.id);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, hint);
}

/** A button that says what it does. */
export function button(text, action, attributes = {}) {
  return h("button", { type: "button", ...attributes, on: { click: action } }, text);
}

/** A choice of one of a few: buttons in a row, of which one is pressed. */
export function segments(label, options, chosen, choose) {
  const buttons = options.map(([value, text]) =>
    button(text, () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other.dataset.value === value));
      choose(value);
    }, { "aria-pressed": String(value === chosen), data: { value } }),
  );
  return h("div", { class: "segments", role: "group", "aria-label": label }, buttons);
}

/** Hand text or bytes to the user as a file. */
export function saveAs(blob, name) {
  const address = URL.createObjectURL(blob);
  const anchor = h("a", { href: address, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
