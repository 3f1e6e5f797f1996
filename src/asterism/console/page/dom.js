// Elements of the page. Texts are always text nodes: what comes from rules never becomes markup, and never chooses the name of
// an element or of an attribute.

export function h(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "value" || name === "checked" || name === "disabled" || name === "selected") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function svg(tag, options = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(options)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

// A text from outside, isolated from the direction of the text around it.
export function foreign(text, className = "") {
  return h("bdi", { class: className }, String(text));
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function byId(id) {
  return document.getElementById(id);
}

export function plural(count, one, many = `${one}s`) {
  return `${Number(count).toLocaleString("en")} ${count === 1 ? one : many}`;
}

export function number(value) {
  if (value === null || value === undefined) return "–";
  const digits = Math.abs(value) < 1 ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: 1 };
  return Number(value).toLocaleString("en", digits);
}

export function timeText(iso) {
  if (!iso) return "–";
  return iso.replace("T", " ").replace(/(\.\d+)?(\+00:00|Z)?$/, "");
}

export function toast(text, kind = "good") {
  const element = h("p", { class: `toast ${kind}` }, text);
  byId("toasts").append(element);
  setTimeout(() => element.remove(), 6000);
}

// An error in a box; the parts come from the server.
export function errorBox(error, title = null) {
  return h(
    "div",
    { class: "error-box", role: "alert" },
    h("p", { class: "error-title" }, title, title ? ": " : null, foreign(error.message ?? String(error))),
    error.detail ? h("pre", {}, error.detail) : null,
    error.hint ? h("p", { class: "hint" }, "Hint: ", foreign(error.hint)) : null,
  );
}

export function empty(title, text, ...more) {
  return h("div", { class: "empty" }, h("h2", {}, title), text ? h("p", {}, text) : null, ...more);
}

export function loading(text = "Loading …") {
  return h("p", { class: "loading", role: "status" }, h("span", { class: "spinner", "aria-hidden": "true" }), text);
}

// A modal dialog. Resolves to the value of the button that closed it, or to null.
export function dialog(title, content, buttons) {
  return new Promise((resolve) => {
    const heading = h("h2", { id: "dialog-title" }, title);
    const form = h("form", { method: "dialog" }, heading, content, h("div", { class: "buttons" }, buttons.map(([value, text, kind]) =>
      h("button", { value, class: kind ?? "", formnovalidate: value === "" }, text))));
    const element = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    element.addEventListener("close", () => {
      element.remove();
      resolve(element.returnValue || null);
    });
    document.body.append(element);
    element.showModal();
  });
}
