// Suggestions below the cursor of an editor. ARIA admits no combobox that has several lines, so the text area stays a text box, with
// the properties of one that has a list: the list is named by aria-controls, and the chosen option by aria-activedescendant.

import { suggestionsAt } from "./context.js";
import { foreign, h, plural, replace } from "../dom.js";

const MAX_SUGGESTIONS = 60;
const SHOWN = 8;

export class Completion {
  // known: gives a promise of {columns, functions, words, fields}
  constructor(area, { known, place, onAccept }) {
    Object.assign(this, { area, known, place, onAccept, all: [], active: -1 });
    this.list = h("ul", { id: "suggestions", class: "suggestions", role: "listbox", "aria-label": "Suggestions", hidden: true });
    this.status = h("div", { class: "hidden", role: "status" });
    area.setAttribute("aria-autocomplete", "list");
    area.setAttribute("aria-haspopup", "listbox");
    area.addEventListener("input", (event) => this.typed(event));
    area.addEventListener("blur", () => this.close());
    area.addEventListener("click", () => this.close());
    area.addEventListener("scroll", () => this.isOpen && this.place(this.list, this.length));
  }

  get isOpen() {
    return !this.list.hidden;
  }

  // Text that is pasted, or set by a script, opens nothing.
  typed(event) {
    const isTyped = event.inputType === "insertText" && /[\p{L}\p{N}_.`]$/u.test(event.data ?? "");
    if (isTyped || (this.isOpen && /^(insertText|deleteContentBackward)$/.test(event.inputType ?? ""))) return this.open();
    return this.close();
  }

  async open(isWanted = false) {
    const { area } = this;
    const known = await this.known();
    if (document.activeElement !== area || area.selectionStart !== area.selectionEnd || area.readOnly) return this.close();
    const found = suggestionsAt(area.value, area.selectionStart, known);
    if (!found || (!isWanted && !found.word && area.value[area.selectionStart - 1] !== "." && area.value[area.selectionStart - 1] !== "`")) return this.close();
    this.all = found.all.slice(0, MAX_SUGGESTIONS);
    this.length = found.length;
    this.active = isWanted ? 0 : -1;
    this.draw();
    const count = plural(this.all.length, "suggestion");
    this.status.textContent = this.active < 0 ? `${count}, arrow keys choose` : count;
    this.place(this.list, found.length);
    return undefined;
  }

  close() {
    if (!this.isOpen) return;
    this.list.hidden = true;
    this.all = [];
    this.active = -1;
    this.status.textContent = "";
    this.area.removeAttribute("aria-controls");
    this.area.removeAttribute("aria-activedescendant");
  }

  // As many options as fit are shown, with the active one among them.
  draw() {
    const { all, active } = this;
    const first = Math.max(0, Math.min(active - SHOWN + 2, all.length - SHOWN));
    replace(this.list, all.slice(first, first + SHOWN).map(({ name, note, kind }, at) => h("li", {
      id: `suggestion-${first + at}`, role: "option", class: `suggestion ${kind}`, "aria-selected": String(first + at === active), "aria-posinset": first + at + 1, "aria-setsize": all.length,
      // The focus stays in the text.
      onmousedown: (event) => {
        event.preventDefault();
        this.accept(first + at);
      },
    }, foreign(name, "suggestion-name"), note ? foreign(note, "suggestion-note") : null)));
    this.list.hidden = false;
    this.area.setAttribute("aria-controls", this.list.id);
    if (active < 0) this.area.removeAttribute("aria-activedescendant");
    else this.area.setAttribute("aria-activedescendant", `suggestion-${active}`);
  }

  accept(at) {
    const { area, length } = this;
    const { text } = this.all[at];
    this.close();
    const end = area.selectionStart;
    // "price(" before an existing parenthesis would double it.
    const put = text.endsWith("(") && area.value[end] === "(" ? text.slice(0, -1) : text;
    area.setRangeText(put, end - length, end, "end");
    this.onAccept();
  }

  // Whether the key was for the list.
  pressed(event) {
    if (event.key === " " && event.ctrlKey && !event.altKey && !event.metaKey) {
      this.open(true);
      return true;
    }
    if (!this.isOpen || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return false;
    const { all, active } = this;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      this.active = active < 0 ? (step > 0 ? 0 : all.length - 1) : (active + step + all.length) % all.length;
      this.draw();
      return true;
    }
    if ((event.key === "Enter" || (event.key === "Tab" && !event.shiftKey)) && active >= 0) {
      this.accept(active);
      return true;
    }
    if (event.key === "Escape") {
      this.close();
      // Otherwise the page takes the focus away.
      event.stopPropagation();
      return true;
    }
    if (["Enter", "Tab", "ArrowLeft", "ArrowRight", "Home", "End", "PageUp", "PageDown"].includes(event.key)) this.close();
    return false;
  }
}
