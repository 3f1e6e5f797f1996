import { post } from "./api.js";
import { dialog, errorBox, foreign, h, loading, number, plural, replace, timeText, toast } from "./dom.js";

const KINDS = new Set(["matched", "dropped", "held", "discarded", "narrowed", "late", "waited", "nothing", "began", "advanced", "error"]);
const IDLE = new Set(["nothing", "waited", "not the start of a match", "skipped after a match"]);
const isIdle = ([what, line]) => IDLE.has(what) || (what === "not matched" && (line.trim() === "no match" || line.includes(" is false ")));
export const samples = new Map();

// Tries the text of the rule on events that are pasted, or taken from the history.
export class TryTab {
  constructor(page) {
    this.page = page;
    this.name = page.id ?? "";
    const { session } = page.app;
    const columns = (session.columns ?? []).map(([name]) => name);
    this.events = h("textarea", {
      class: "code events", rows: 9, spellcheck: "false", wrap: "off", "aria-label": "Events",
      placeholder: `Paste events: JSON lines, a JSON list, or CSV with a header.\n\n${example(columns, session.time)}`,
      value: samples.get(this.name) ?? "",
      oninput: () => samples.set(this.name, this.events.value),
      onkeydown: (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
          event.preventDefault();
          this.run();
        }
      },
    });
    this.button = h("button", { type: "button", class: "primary", title: "Ctrl + Enter", onclick: () => this.run() }, "Try the rule");
    this.key = h("input", { type: "text", size: 18, "aria-label": "Key whose events are taken; several values separated by a comma", placeholder: "keys with matches", title: "Without a key: keys with a match, and keys with several events" });
    this.count = h("input", { type: "number", min: 1, max: session.maxEvents, value: 100, "aria-label": "Number of events" });
    const take = session.history.length ? h("form", { class: "take", onsubmit: (event) => {
      event.preventDefault();
      this.take();
    } }, "Take", this.count, "events of", this.key, h("button", {}, "from the history")) : null;
    this.keep = h("button", { type: "button", hidden: !page.canEdit || Boolean(page.template), onclick: () => this.saveTest() }, "Save as a test");
    this.tests = h("section", { class: "tests", "aria-live": "polite" });
    this.result = h("div", { class: "result", "aria-live": "polite" });
    this.element = h("div", { class: "try-tab" }, h("div", { class: "toolbar" }, this.button, take, this.keep),
      h("p", { class: "dim small" }, session.time ? ["The event time is ", h("code", {}, session.time), ". "] : "There is no event time: events are in the order of the text. ",
        "A timestamp and an expiry of the rule are ignored. Times are in UTC."),
      this.events, this.result, this.tests);
  }

  shown() {
    this.runTests();
  }

  // What the tests in the text of the rule say, which change with it.
  async runTests() {
    const { text } = this.page;
    if (this.tested === text) return;
    this.tested = text;
    if (!/^ *"?tests"? *:/m.test(text)) return replace(this.tests);
    try {
      const results = await post("/api/tests", { text, id: this.page.id });
      if (this.tested !== text) return;
      const failed = results.filter((one) => one.failure.length).length;
      replace(this.tests, h("h2", {}, "Tests of the rule"), h("p", { class: failed ? "problem" : "fine" }, failed ? `${failed} of ${plural(results.length, "test")} failed` : `${plural(results.length, "test")} passed`),
        h("ul", { class: "test-list" }, results.map((one) => h("li", {}, h("span", { class: one.failure.length ? "state bad" : "state good" }, one.failure.length ? "failed" : "passed"), " ", foreign(one.name), one.failure.length ? h("pre", {}, one.failure.join("\n")) : null))));
    } catch {
      if (this.tested === text) replace(this.tests); // the text has problems, which its own view shows
    }
  }

  // The test becomes a part of the text, and is saved at once if nothing else has changed.
  async saveTest() {
    const { page } = this;
    if (!this.events.value.trim()) return this.run();
    const name = h("input", { type: "text", "aria-label": "Name of the test", maxlength: "200", required: true, autofocus: true, value: "sample" });
    const isTaken = this.taken?.text === this.events.value;
    const match = isTaken ? this.taken.match : null;
    const needed = h("input", { type: "checkbox", checked: isTaken });
    const words = match ? `Only the events that the match from ${timeText(match.start)} needs` : "Only the events that the matches need";
    const answer = await dialog("Save as a test", h("div", { class: "fields" }, h("p", {}, "The events, and what the rule finds in them now, are stored with the rule. The version does not change."), h("label", {}, "Name ", name), h("label", {}, needed, ` ${words}`)), [["", "Cancel"], ["yes", "Save", "primary"]]);
    if (answer !== "yes") return;
    const wasChanged = page.isChanged || page.isNew;
    try {
      const found = await post("/api/test", { text: page.text, id: page.id, events: this.events.value, name: name.value, needed: needed.checked && (match ?? true) });
      page.rewrite(found.text);
      await page.check();
      this.runTests();
      const test = `The test ${found.name}, of ${plural(found.events, "event")},`;
      if (wasChanged) return toast(`${test} is in the source, which is not saved yet.`);
      toast(`${test} is saved with the rule.`);
      await page.save();
    } catch (error) {
      replace(this.result, failed(error));
    }
  }

  // The events of the key of a match, and why they match.
  async open(match) {
    const { key } = match;
    replace(this.result, loading("Reading the history …"));
    try {
      const found = await post("/api/events", { text: this.page.text, id: this.page.id, key, limit: 200, around: [match.start, match.end] });
      this.events.value = found.text;
      this.taken = { text: found.text, match: { key, start: match.start, end: match.end } };
      samples.set(this.name, found.text);
      await this.run(key);
    } catch (error) {
      replace(this.result, failed(error));
    }
  }

  async take() {
    const key = this.key.value.trim() ? this.key.value.split(",").map((one) => one.trim()) : null;
    replace(this.result, loading("Reading the history …"));
    try {
      const found = await post("/api/events", { text: this.page.text, id: this.page.id, key, limit: Number(this.count.value) });
      this.events.value = found.text;
      this.taken = { text: found.text, match: null };
      samples.set(this.name, found.text);
      if (!found.events) return replace(this.result, h("p", { class: "empty" }, "The history has no such events."));
      await this.run();
    } catch (error) {
      replace(this.result, failed(error));
    }
  }

  async run(key = null) {
    if (!this.events.value.trim()) {
      replace(this.result, h("p", { class: "empty" }, "Paste some events first."));
      return this.events.focus();
    }
    this.asked?.abort();
    const asked = this.asked = new AbortController();
    this.button.disabled = true;
    if (key === null) replace(this.result, loading("Matching … The first time takes a few seconds."));
    try {
      const found = await post("/api/sample", { text: this.page.text, id: this.page.id, events: this.events.value, key }, asked.signal);
      this.page.app.sampleColumns = found.columns;
      this.show(found);
    } catch (error) {
      if (error.name !== "AbortError") replace(this.result, failed(error));
    } finally {
      if (this.asked === asked) this.button.disabled = false;
    }
  }

  close() {
    this.asked?.abort();
  }

  show(found) {
    const matches = found.matches ?? [], timedOut = found.timedOut ?? [];
    this.rows = new Map();
    this.numbers = found.numbers;
    const used = new Map();
    matches.forEach((match, at) => match.events.forEach(([, event]) => used.set(event, at)));
    const more = found.moreMatches ? h("p", { class: "dim" }, `and ${plural(found.moreMatches, "more match", "more matches")}`) : null;
    const suppressed = found.suppressed ? `, ${number(found.suppressed)} suppressed` : "";
    replace(this.result,
      found.missing?.length ? h("div", { class: "warn-box" }, found.missing.map((text) => h("p", {}, foreign(text)))) : null,
      found.error ? errorBox(found.error, "The rule failed on these events") : h("h2", {}, matches.length ? plural(matches.length + found.moreMatches, "match", "matches") + suppressed : "No match"),
      matches.length ? h("ol", { class: "matches" }, matches.map((match) => this.match(match))) : null, more,
      timedOut.length ? [h("h2", {}, plural(timedOut.length, "timed-out partial match", "timed-out partial matches")), h("ol", { class: "matches" }, timedOut.map((match) => this.match(match)))] : null,
      found.trace ? this.trace(found) : null,
      h("details", { open: found.rows.length <= 60 }, h("summary", {}, plural(found.rows.length, "event")), this.table(found, used)));
  }

  match(match) {
    const stages = new Map();
    for (const [stage, event] of match.events) stages.set(stage, [...(stages.get(stage) ?? []), event]);
    const measures = Object.entries(match.measures ?? {});
    return h("li", { class: "match", onmouseenter: () => this.light(match, true), onmouseleave: () => this.light(match, false) },
      h("p", { class: "match-head" }, match.key.length ? h("b", {}, foreign(keyText(match.key))) : h("b", {}, "all events"),
        h("span", { class: "dim" }, match.start === match.end ? timeText(match.start) : `${timeText(match.start)} – ${timeText(match.end)}`),
        match.suppressed ? h("span", { class: "state info" }, `${number(match.suppressed)} suppressed before`) : null,
        match.key.length ? h("button", { type: "button", class: "small quiet", onclick: () => this.run(match.key) }, "Why", h("span", { class: "hidden" }, ` ${keyText(match.key)} matches`)) : null),
      measures.length ? h("dl", { class: "measures" }, measures.map(([name, value]) => h("div", {}, h("dt", {}, foreign(name)), h("dd", {}, value === null ? h("i", {}, "NULL") : foreign(value))))) : null,
      stages.size ? h("p", { class: "stages" }, [...stages].map(([stage, events]) => h("span", { class: "stage" }, foreign(stage, "stage-name"), ` ${ranges(events.map((event) => this.numbers[event - 1]))}`))) : null);
  }

  light(match, on) {
    for (const [, event] of match.events) this.rows.get(event)?.classList.toggle("lit", on);
  }

  table(found, used) {
    return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Events" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col", title: "The number of the event among those of its key, as in the trace" }, found.key.length ? "# of key" : "#"), found.columns.map(([name, type]) => h("th", { scope: "col", title: type }, foreign(name))))),
      h("tbody", {}, found.rows.map((row, at) => {
        const element = h("tr", { class: used.has(at + 1) ? "used" : "" }, h("th", { scope: "row" }, String(found.numbers[at]), used.has(at + 1) ? h("span", { class: "hidden" }, ` in match ${used.get(at + 1) + 1}`) : null), row.map((cell) => h("td", {}, cell === null ? h("i", { class: "dim" }, "NULL") : foreign(cell))));
        this.rows.set(at + 1, element);
        return element;
      }))));
  }

  trace(found) {
    const { key, lines } = found.trace;
    const select = h("select", { "aria-label": "Key to trace", onchange: () => this.run(found.keys[select.selectedIndex].key) }, found.keys.map((one) =>
      h("option", { selected: JSON.stringify(one.key) === JSON.stringify(key) }, `${keyText(one.key) || "all events"}: ${plural(one.events, "event")}, ${plural(one.matches, "match", "matches")}`)));
    const end = lines.findLastIndex(([, line]) => line === "") + 1;
    const moments = [];
    for (const [what, line] of lines.slice(1, end)) {
      if (line === "") moments.push([]);
      else moments.at(-1)?.push([what, line]);
    }
    const idle = (moment) => moment.slice(1).every(isIdle);
    const steps = h("div", { class: "trace", tabindex: 0, role: "region", "aria-label": "Trace" }, moments.filter((moment) => moment.length).map((moment) =>
      h("div", { class: idle(moment) ? "idle" : "" }, moment.map(([what, line], at) => h("div", { class: at === 0 && what === "" ? "moment" : KINDS.has(what) ? what : "" }, line)), h("div", { class: "gap" }))));
    const isLong = moments.length > 12 && moments.some((moment) => moment.length && !idle(moment));
    steps.classList.toggle("brief", isLong);
    const brief = h("label", {}, h("input", { type: "checkbox", checked: isLong, onchange: (event) => steps.classList.toggle("brief", event.target.checked) }), "Only events that change something");
    return h("div", { class: "trace-box" }, h("div", { class: "trace-head" }, h("h2", {}, "Why, event by event"), found.keys.length > 1 ? select : null, moments.some(idle) ? brief : null),
      found.suppressed ? h("p", { class: "dim small" }, "The trace has the matches that were suppressed, too.") : null,
      h("p", { class: "trace-summary" }, lines.slice(end).map(([, line]) => line).join("\n")), steps, h("p", { class: "dim small" }, "The numbers count the events of this key, here and in the table of events."));
  }
}

function failed(error) {
  const problems = error.answer?.problems;
  if (problems) return errorBox({ message: "Correct the rule first", hint: problems.length ? `line ${problems[0].line}: ${problems[0].message}` : undefined });
  return errorBox(error);
}

export function keyText(key) {
  return key.map((one) => one ?? "NULL").join(", ");
}

function ranges(events) {
  const runs = [];
  for (const event of events) {
    const last = runs.at(-1);
    if (last && event === last[1] + 1) last[1] = event;
    else runs.push([event, event]);
  }
  return runs.map(([from, to]) => (from === to ? `${from}` : to === from + 1 ? `${from}, ${to}` : `${from}–${to}`)).join(", ");
}

function example(columns, time) {
  const names = columns.length ? columns.slice(0, 4) : [time ?? "ts", "user", "price"];
  return JSON.stringify(Object.fromEntries(names.map((name) => [name, name === time ? "2026-01-31 12:00:00" : "…"])));
}
