// A text area with line numbers, colours, and the places of problems. The colours are in a layer behind the text area, which
// is hidden from screen readers; problems are also a list below.

import { parts } from "./colours.js";
import { Completion } from "./complete.js";
import { foreign, h, plural, replace } from "../dom.js";

const MAX_COLOURED = 200_000;

function coloured(text) {
  if (text.length > MAX_COLOURED) return [text];
  const spans = [];
  parts(text, (part, kind) => spans.push(kind === null ? part : h("span", { class: `t-${kind}` }, part)));
  return spans;
}

export class Editor {
  constructor({ label, text, onChange, onSave, known, readOnly = false }) {
    this.onChange = onChange;
    this.gutter = h("div", { class: "gutter", "aria-hidden": "true" });
    this.layer = h("pre", { class: "layer", "aria-hidden": "true" });
    this.marks = h("div", { class: "marks", "aria-hidden": "true" });
    this.area = h("textarea", {
      class: "code", spellcheck: "false", autocomplete: "off", autocapitalize: "off", wrap: "off", "aria-label": label,
      "aria-describedby": "problems", readonly: readOnly,
      oninput: () => this.changed(),
      onscroll: () => this.scrolled(),
      onkeydown: (event) => {
        if (this.completion.pressed(event)) return event.preventDefault();
        if (event.key === "Enter" && !event.ctrlKey && !event.metaKey && !event.altKey) this.newLine(event);
        if (event.key.toLowerCase() === "s" && (event.ctrlKey || event.metaKey)) {
          event.preventDefault();
          onSave?.();
        }
        return undefined;
      },
    });
    this.problems = h("div", { id: "problems", class: "problems", "aria-live": "polite" });
    this.completion = new Completion(this.area, { known, place: (list, length) => this.placeBelow(list, length), onAccept: () => this.changed() });
    this.surface = h("div", { class: "surface" }, this.layer, this.marks, this.area);
    this.element = h("div", { class: "editor-box" }, h("div", { class: "editor" }, this.gutter, this.surface), this.completion.list, this.completion.status);
    this.text = text;
  }

  get text() {
    return this.area.value;
  }

  set text(value) {
    this.area.value = value;
    this.draw();
  }

  changed() {
    this.draw();
    this.onChange?.(this.area.value);
  }

  // Puts a list below the word before the cursor, which has so many characters.
  placeBelow(list, length) {
    const { selectionStart, scrollTop, scrollLeft, value } = this.area;
    const lines = value.slice(0, selectionStart - length).split("\n");
    const column = [...lines.at(-1).replaceAll("\t", "  ")].length;
    list.style.top = `calc(var(--pad) + ${lines.length} * var(--line) - ${scrollTop}px)`;
    list.style.left = `max(0px, min(calc(var(--pad) + ${column}ch + ${this.surface.offsetLeft - scrollLeft}px), calc(100% - ${list.offsetWidth}px)))`;
  }

  // A new line begins below the text of the line before.
  newLine(event) {
    const { selectionStart, value } = this.area;
    const line = value.slice(value.lastIndexOf("\n", selectionStart - 1) + 1, selectionStart);
    const indent = /^\s*(?:- )?/.exec(line)[0].replace("-", " ") + (/[:|>]\s*$/.test(line) ? "  " : "");
    if (!indent) return;
    event.preventDefault();
    this.area.setRangeText(`\n${indent}`, selectionStart, this.area.selectionEnd, "end");
    this.changed();
  }

  draw() {
    const text = this.area.value;
    const lines = text.split("\n").length;
    replace(this.layer, coloured(text), "\n");
    if (this.lines !== lines) {
      this.lines = lines;
      replace(this.gutter, Array.from({ length: lines }, (_, at) => h("div", {}, String(at + 1))));
    }
    this.area.rows = Math.min(Math.max(lines + 1, 14), 36);
    this.scrolled();
  }

  scrolled() {
    const { scrollTop, scrollLeft } = this.area;
    for (const layer of [this.layer, this.marks]) layer.style.transform = `translate(${-scrollLeft}px, ${-scrollTop}px)`;
    this.gutter.scrollTop = scrollTop;
  }

  // Shows problems and warnings; null: they are not known yet.
  show(checked) {
    const lines = this.area.value.split("\n");
    const all = [...(checked?.problems ?? []).map((one) => ["error", one]), ...(checked?.warnings ?? []).map((one) => ["warning", one])];
    replace(this.marks, all.map(([kind, one]) => {
      const line = lines[one.line - 1] ?? "";
      const from = Math.min(Math.max(one.column - 1, 0), line.length);
      const length = /^[\w.$]+|^"[^"]*"?|^'[^']*'?/.exec(line.slice(from))?.[0].length ?? 1;
      const mark = h("div", { class: `mark ${kind}` });
      mark.style.top = `calc(var(--pad) + ${one.line - 1} * var(--line))`;
      mark.style.left = `calc(var(--pad) + ${from}ch)`;
      mark.style.width = `${Math.max(length, 1)}ch`;
      return mark;
    }));
    for (const [at, number] of [...this.gutter.children].entries()) {
      const kinds = all.filter(([, one]) => one.line === at + 1).map(([kind]) => kind);
      number.className = kinds.includes("error") ? "error" : kinds.length ? "warning" : "";
    }
    if (checked === null) return;
    const more = checked.more ? h("li", { class: "more" }, `${plural(checked.more, "more problem")}`) : null;
    replace(this.problems, all.length === 0 ? h("p", { class: "fine" }, "No problems.") : h("ul", {}, all.map(([kind, one]) =>
      h("li", { class: kind }, h("button", { type: "button", class: "place", onclick: () => this.goTo(one.line, one.column) },
        h("span", { class: "kind" }, kind === "error" ? "Error" : "Warning"), h("span", { class: "at" }, `${one.line}:${one.column}`)),
      h("div", { class: "what" }, foreign(one.message),
        one.detail ? h("pre", { class: one.detail.includes("^") ? "" : "wrap" }, one.detail) : null,
        one.hint ? h("p", { class: "hint" }, "Hint: ", foreign(one.hint)) : null))), more));
  }

  goTo(line, column) {
    const before = this.area.value.split("\n").slice(0, line - 1);
    const offset = before.reduce((sum, one) => sum + one.length + 1, 0) + column - 1;
    this.area.focus();
    this.area.setSelectionRange(offset, offset);
    const height = parseFloat(getComputedStyle(this.area).lineHeight);
    this.area.scrollTop = Math.max(0, (line - 5) * height);
  }
}
