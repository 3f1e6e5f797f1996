// The usual shapes of rules as fields. The server writes the text of a form, and reads the form of a text; here are only the fields.

import { post } from "./api.js";
import { foreign, h, plural, replace, timeText } from "./dom.js";
import { keyText, samples } from "./try.js";

const SHAPES = [
  ["sequence", "events, and then another one"], ["count", "several events"], ["absence", "an event, and then no other"],
  ["total", "a sum or a number of values over a limit"], ["fast", "events in quick succession"], ["first", "a value for the first time"],
  ["change", "a changed value"],
];
const UNITS = [["SECOND", "seconds"], ["MINUTE", "minutes"], ["HOUR", "hours"], ["DAY", "days"]];
const COMPARED = [["=", "is"], ["<>", "is not"], ["<", "is less than"], ["<=", "is at most"], [">", "is more than"], [">=", "is at least"]];
const OF_TEXTS = [["=", "is"], ["<>", "is not"], ["contains", "contains"], ["startswith", "begins with"], ["<", "is before"], [">", "is after"]];
const OF_NULLS = [["IS NULL", "is empty"], ["IS NOT NULL", "is not empty"]];
const TIMED = new Set(["sequence", "count", "absence", "total", "fast", "change"]);
const DEBOUNCE = 300;
const MAX_SHOWN = 5;
const MAX_NOTE = 1000;
// The line of the id, in YAML.
const ID_LINE = /^id:[^\n]*$/m;
const BUSY = 5000;

function kindOf(type) {
  if (/^(TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL)/.test(type)) return "number";
  return { STRING: "text", BOOLEAN: "boolean", DATE: "date" }[type] ?? (type.startsWith("TIMESTAMP") ? "time" : null);
}

export class RuleForm {
  constructor(page) {
    this.page = page;
    this.form = null;
    this.fields = h("div", { class: "form-fields" });
    this.notes = Object.fromEntries([["title", h("input", { type: "text", class: "wide", placeholder: "What the rule finds, in a few words" })], ["description", h("textarea", { class: "wide", rows: 2, placeholder: "Why it matters, and what to do about a match" })]].map(([name, element]) => {
      element.maxLength = MAX_NOTE;
      element.addEventListener("input", () => this.noted());
      return [name, element];
    }));
    this.id = h("input", { type: "text", class: "wide", maxlength: 200, autocomplete: "off", spellcheck: "false", oninput: () => this.identified() });
    this.idRow = page.isNew ? h("label", { class: "form-note" }, h("span", {}, "Id"), this.id) : null;
    const noteRow = (text, name) => h("label", { class: "form-note" }, h("span", {}, text), this.notes[name]);
    this.status = h("div", { class: "form-status", "aria-live": "polite" });
    this.live = h("div", { class: "form-live", "aria-live": "polite" });
    this.element = h("details", { class: "rule-form", open: page.isNew, ontoggle: () => this.liveMatches() }, h("summary", {}, "Form"), this.noteRows = h("div", { class: "form-fields" }, this.idRow, noteRow("Title", "title"), noteRow("Description", "description")), this.fields, this.status, this.live);
  }

  // The columns that a form can compare, with their kinds.
  get columns() {
    const { app } = this.page;
    const columns = app.session.columns ?? app.sampleColumns ?? [];
    return columns.map(([name, type]) => [name, kindOf(type)]).filter(([, kind]) => kind !== null);
  }

  kind(column) {
    return this.columns.find(([name]) => name === column)?.[1] ?? null;
  }

  // The text was checked, which also says what its form is.
  checked(checked) {
    if (checked.failed) return;
    this.showNotes(checked.notes);
    if (this.idRow) {
      this.idRow.hidden = !ID_LINE.test(this.page.text);
      if (checked.id && document.activeElement !== this.id) this.id.value = checked.id;
    }
    if (this.isTyping) return;
    const form = checked.form ?? null;
    const isSame = form !== null && JSON.stringify(form) === JSON.stringify(this.form);
    this.form = form;
    if (!isSame || !this.fields.childElementCount) this.draw();
    this.liveMatches();
  }

  // The text is edited: it counts, and not what was typed into the fields before.
  edited() {
    if (this.isWriting) return;
    this.isTyping = this.isNoting = false;
    clearTimeout(this.timer);
    clearTimeout(this.noteTimer);
    replace(this.status);
  }

  // The title and the description of the text, unless they are being written.
  showNotes(notes) {
    this.noteRows.hidden = !notes;
    if (!notes || this.isNoting) return;
    for (const [name, element] of Object.entries(this.notes)) if (element.value.trim() !== notes[name].trim()) element.value = notes[name];
  }

  identified() {
    const id = this.id.value.trim();
    if (id) this.rewrite(this.page.text.replace(ID_LINE, () => `id: ${JSON.stringify(id)}`));
  }

  noted() {
    this.isNoting = true;
    clearTimeout(this.noteTimer);
    const timer = setTimeout(() => this.writeNotes(timer), DEBOUNCE);
    this.noteTimer = timer;
  }

  async writeNotes(timer) {
    const { page } = this;
    const { text } = page;
    const notes = Object.fromEntries(Object.entries(this.notes).map(([name, element]) => [name, element.value.trim()]));
    try {
      const written = await post("/api/form", { text, notes });
      if (page.closed || !this.isNoting || this.noteTimer !== timer) return; // they are written again, or the text counts
      if (page.text !== text) return this.noted();
      this.isNoting = false;
      this.rewrite(written.text);
    } catch (error) {
      if (this.noteTimer === timer) replace(this.status, h("p", { class: "problem" }, foreign(error.message)));
    }
  }

  // A text that comes from the form takes nothing back that is being typed into it.
  rewrite(text) {
    this.isWriting = true;
    this.page.rewrite(text);
    this.isWriting = false;
  }

  changed(change, isDrawn = false) {
    this.form = { ...this.form, ...change };
    this.isTyping = true;
    if (isDrawn) this.draw(true);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), DEBOUNCE);
  }

  async write() {
    const { page, form } = this;
    const { text } = page;
    try {
      const written = await post("/api/form", { text, form });
      if (page.closed || this.form !== form || !this.isTyping) return;
      if (page.text !== text) return this.write(); // the title was written meanwhile
      this.isTyping = false;
      this.rewrite(written.text);
    } catch (error) {
      if (this.form === form) replace(this.status, h("p", { class: "problem" }, foreign(error.message)));
    }
  }

  begin() {
    const { session } = this.page.app;
    const known = new Set(this.columns.map(([name]) => name));
    const keys = session.streamKey.filter((name) => !known.size || known.has(name)).slice(0, 2);
    this.form = { shape: "count", keys, time: session.time, first: [], second: [], times: 3, total: "sum", column: "", limit: "0", within: [10, "MINUTE"], repeats: 1 };
    this.changed({}, true);
  }

  draw(isKept = false) {
    const { form } = this;
    if (!isKept) replace(this.status);
    if (form === null) {
      if (this.page.checked === null) return;
      replace(this.fields, h("p", { class: "dim" }, "The text says more than a form can show. Change it below, or ", h("button", { type: "button", class: "small", onclick: () => this.begin() }, "begin with a form"), ", which replaces the pattern of the text; Revert restores it."));
      return;
    }
    const focused = this.fields.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    replace(this.fields,
      h("div", { class: "form-row" }, h("label", {}, "Find ", this.select("Shape of the rule", SHAPES, form.shape, (shape) => this.choose(shape))),
        h("span", {}, "for each"), [...form.keys, ""].slice(0, 5).map((key, at) => this.column(at ? `Key ${at + 1}` : "Key", key, (name) => this.changed({ keys: name ? [...form.keys.slice(0, at), name, ...form.keys.slice(at + 1)] : form.keys.filter((_, other) => other !== at) }, true), at === form.keys.length ? (at ? "–" : "key of the stream") : "–"))),
      this.sentence(form));
    if (focused) [...this.fields.querySelectorAll("[aria-label]")].find((one) => one.getAttribute("aria-label") === focused)?.focus();
  }

  choose(shape) {
    const { form } = this;
    const numbers = this.columns.filter(([, kind]) => kind === "number");
    const others = this.columns.filter(([name]) => name !== form.time && !form.keys.includes(name));
    const fits = form.column && (shape !== "total" || form.total !== "sum" || this.kind(form.column) === "number");
    const column = fits ? form.column : (shape === "total" ? numbers[0] ?? others[0] : others[0])?.[0] ?? "";
    this.changed({ shape, column, within: TIMED.has(shape) ? form.within ?? [10, "MINUTE"] : form.within }, true);
  }

  sentence(form) {
    const first = (text) => this.conditions("first", text);
    const column = () => this.column("Column", form.column, (name) => this.changed({ column: name }));
    const row = (...parts) => h("div", { class: "form-row" }, parts);
    switch (form.shape) {
      case "sequence": return [first(["First, at least", this.repeats(), "times an event where"]), this.conditions("second", "then an event where"), row("within", this.duration())];
      case "absence": return [first("An event where"), this.conditions("second", "and then no event where"), row("within", this.duration())];
      case "count": return [row("At least", this.times(), "events within", this.duration()), first("where")];
      case "fast": return [row("At least", this.times(), "events, each less than", this.duration(), "after the one before"), first("where")];
      case "total": return [row(this.select("Total", [["sum", "The sum of"], ["distinct", "The number of different values of"]], form.total, (total) => this.changed({ total })), column(), "is more than",
        this.input("Limit", form.limit, (limit) => this.changed({ limit }), { inputmode: "decimal", size: 8 }), "within", this.duration()), first("of events where")];
      case "first": return [row("The first event with each value of", column()), first("of events where")];
      default: return [row(column(), "is another one than in the event before, within", this.duration(true)), first("of events where")];
    }
  }

  conditions(part, text) {
    const { form } = this;
    const all = form[part];
    const set = (changed, isDrawn) => this.changed({ [part]: changed }, isDrawn);
    const replaced = (at, change) => all.map((one, other) => (other === at ? { ...one, ...change } : one));
    const current = () => this.form[part];
    const name = part === "first" ? "" : " of the second event";
    return h("div", { class: "form-conditions" }, h("div", { class: "form-row" }, text, all.length ? null : h("span", { class: "dim" }, "anything is so"),
      h("button", { type: "button", class: "small", "aria-label": `Add a condition${name}`, onclick: () => set([...all, this.condition()], true) }, "Add a condition")),
    all.map((one, at) => {
      const label = (what) => `${what} of condition ${at + 1}${name}`;
      const kind = this.kind(one.column) ?? one.kind;
      const operators = [...(kind === "text" ? OF_TEXTS : kind === "boolean" ? COMPARED.slice(0, 2) : COMPARED), ...OF_NULLS];
      const known = operators.some(([operator]) => operator === one.operator) ? operators : [...operators, [one.operator, one.operator]];
      const value = (text) => this.changed({ [part]: current().map((other, place) => (place === at ? { ...other, value: text, kind: this.kind(other.column) ?? (/^-?\d+(\.\d+)?$/.test(text) ? "number" : "text") } : other)) });
      return h("div", { class: "form-row condition" }, at ? h("span", { class: "dim" }, "and") : null,
        this.column(label("Column"), one.column, (column) => {
          const next = this.kind(column) ?? "text";
          set(replaced(at, { column, kind: next, operator: "=", value: next === kind ? one.value : next === "boolean" ? "true" : "" }), true);
        }),
        this.select(label("Comparison"), known, one.operator, (operator) => set(current().map((other, place) => (place === at ? { ...other, operator } : other)), true)),
        one.operator.startsWith("IS ") ? null : kind === "boolean" ? this.select(label("Value"), [["true", "true"], ["false", "false"]], one.value, value)
          : this.input(label("Value"), one.value, value, { size: 14, inputmode: kind === "number" ? "decimal" : null, placeholder: { time: "2026-01-31 12:00:00", date: "2026-01-31" }[kind] }),
        h("button", { type: "button", class: "small quiet", "aria-label": `Remove condition ${at + 1}${name}`, onclick: () => set(all.filter((_, other) => other !== at), true) }, "×"));
    }));
  }

  condition() {
    const { form } = this;
    const others = this.columns.filter(([name]) => name !== form.time && !form.keys.includes(name));
    const [column, kind] = others.find(([, kind]) => kind === "text") ?? others[0] ?? ["", "text"];
    return { column, operator: "=", kind, value: kind === "boolean" ? "true" : kind === "number" ? "0" : "" };
  }

  times() {
    return this.input("Number of events", this.form.times, (text) => this.changed({ times: Number(text) }), { type: "number", min: 2, max: 100 });
  }

  repeats() {
    return this.input("Number of first events", this.form.repeats, (text) => this.changed({ repeats: Number(text) }), { type: "number", min: 1, max: 100 });
  }

  duration(isOptional = false) {
    const [count, unit] = this.form.within ?? ["", "MINUTE"];
    const of = () => this.form.within ?? [0, "MINUTE"];
    return [this.input("Duration", count, (text) => this.changed({ within: isOptional && text === "" ? null : [Number(text), of()[1]] }), { type: "number", min: 1, max: 9999, placeholder: isOptional ? "any" : null }),
      this.select("Unit of the duration", UNITS, unit, (one) => { if (this.form.within) this.changed({ within: [of()[0], one] }); })];
  }

  column(label, value, onChoose, none = null) {
    const names = this.columns.map(([name]) => name);
    if (!names.length) return this.input(label, value, onChoose, { size: 12, placeholder: none ?? "column" }, "change");
    const options = [...(none === null ? [] : [["", none]]), ...(value === "" || names.includes(value) ? [] : [[value, value]]), ...names.map((name) => [name, name])];
    return this.select(label, options, value, onChoose);
  }

  select(label, options, value, onChoose) {
    const element = h("select", { "aria-label": label, onchange: () => onChoose(element.value) }, options.map(([name, text]) => h("option", { value: name, selected: name === value }, text)));
    return element;
  }

  input(label, value, onInput, options = {}, event = "input") {
    const element = h("input", { type: "text", "aria-label": label, value: String(value), autocomplete: "off", spellcheck: "false", ...options, [`on${event}`]: () => onInput(element.value) });
    return element;
  }

  // The matches of the text in the sample of the view "Try", or else in events of the history.
  async liveMatches() {
    const { page } = this;
    const { text, checked } = page;
    if (!this.element.open || !checked || checked.problems.length || this.shown === text + (samples.get(page.name) ?? "")) return;
    this.shown = text + (samples.get(page.name) ?? "");
    this.asked?.abort();
    this.asked = new AbortController();
    const { signal } = this.asked;
    try {
      let events = samples.get(page.name);
      if (!events?.trim()) {
        if (!page.app.session.history.length) return replace(this.live, h("p", { class: "dim small" }, "Paste events in the view Try, and their matches are shown here."));
        this.taken ??= (await post("/api/events", { text: null, id: page.id, key: null, limit: 500 }, signal)).text;
        events = this.taken;
      }
      const found = await post("/api/sample", { text, id: page.id, events, key: null }, signal);
      if (page.closed || page.text !== text) return;
      this.showMatches(found);
    } catch (error) {
      if (error.name === "AbortError") return;
      replace(this.live, h("p", { class: "dim small" }, foreign(error.message)));
      if (error.status === 503 && page.text === text) setTimeout(() => this.again(), BUSY);
    }
  }

  close() {
    this.asked?.abort();
  }

  // After other rules have been tried.
  again() {
    this.shown = null;
    if (!this.page.closed) this.liveMatches();
  }

  showMatches(found) {
    const count = (found.matches?.length ?? 0) + (found.moreMatches ?? 0);
    if (found.error) return replace(this.live, h("p", { class: "problem" }, foreign(found.error.message)));
    replace(this.live, h("p", {}, h("b", {}, count ? plural(count, "match", "matches") : "No match"), ` in ${plural(found.rows.length, "event")} of the sample`),
      count ? h("ul", { class: "live-matches" }, found.matches.slice(0, MAX_SHOWN).map((match) => h("li", {}, match.key.length ? foreign(keyText(match.key)) : null, " ", h("span", { class: "dim" }, match.start === match.end ? timeText(match.start) : `${timeText(match.start)} – ${timeText(match.end)}`)))) : null);
  }
}
