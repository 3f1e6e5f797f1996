import { post } from "./api.js";
import { diffLines, diffView } from "./diff.js";
import { errorBox, foreign, h, loading, replace, timeText } from "./dom.js";
import { stateBadge } from "./list.js";

// Lines of a version in the list, their characters, and those of the texts that are compared for it.
const MAX_CHANGES = 3;
const MAX_LINE = 200;
const MAX_COMPARED = 20_000;

// The stored versions of a rule, the differences between two of them, and the history of the query.
export class VersionsTab {
  constructor(page) {
    this.page = page;
    this.stored = page.rule.versions.filter((one) => one.text !== null).map((one) =>
      [`Version ${one.version}${{ on: ", in use", shadow: ", shadow" }[one.state] ?? ""}`, () => one.text]);
    this.earlier = [];
    this.chosen = this.preset();
    const table = h("div", { class: "scroll" }, h("table", { class: "versions" }, h("thead", {}, h("tr", {}, ["Version", "State", "What", "Changed", ""].map((name) => h("th", { scope: "col" }, name || h("span", { class: "hidden" }, "Changes"))))),
      h("tbody", {}, page.rule.versions.map((one, at) => this.row(one, page.rule.versions[at + 1] ?? null)))));
    this.selects = h("div", { class: "toolbar" });
    this.view = h("div", {});
    this.history = h("section", { class: "history" });
    this.element = h("div", { class: "versions-tab" }, table, this.selects, this.view, this.history);
    this.drawSelects();
    if (page.app.session.hasStatus) this.load();
  }

  // What differs first: unsaved changes, else a shadow, else the version in use and the one before it, or the next one.
  preset() {
    const { page } = this;
    const stored = page.rule.versions.filter((one) => one.text !== null);
    const used = Math.max(stored.findIndex((one) => one.state === "on"), 0);
    const shadow = stored.findIndex((one) => one.state === "shadow");
    if (page.isChanged || stored.length < 2) return [used, stored.length];
    if (shadow >= 0 && shadow !== used) return [used, shadow];
    return used + 1 < stored.length ? [used + 1, used] : [used - 1, used];
  }

  shown() {
    this.compare();
  }

  drawSelects() {
    this.named = [...this.stored, ["As edited", () => this.page.text], ...this.earlier];
    const select = (label, at) => h("select", { "aria-label": label, onchange: (event) => {
      this.chosen[at] = Number(event.target.value);
      this.compare();
    } }, this.named.map(([name], number) => h("option", { value: String(number), selected: number === this.chosen[at] }, name)));
    replace(this.selects, h("h2", {}, "Differences"), h("label", {}, "from ", select("Before", 0)), h("label", {}, "to ", select("After", 1)));
  }

  compare() {
    const [before, after] = this.chosen.map((one) => this.named[one]?.[1]() ?? "");
    replace(this.view, diffView(before, after));
  }

  // The first lines that a version has, and the one before it does not.
  changes(one, before) {
    if (!before || [one, before].some(({ text }) => text === null || text.length > MAX_COMPARED)) return null;
    const lines = diffLines(before.text, one.text).filter(([kind, line]) => kind === "+" && line.trim() && !/^version:/.test(line)).map(([, line]) => line.trim().slice(0, MAX_LINE));
    return lines.length ? h("p", {}, h("code", { class: "changes" }, `${lines.slice(0, MAX_CHANGES).join(" ")}${lines.length > MAX_CHANGES ? " …" : ""}`)) : null;
  }

  // *before*: the version below it.
  row(one, before) {
    const { page } = this;
    const write = page.canEdit && !page.template && one.version !== null;
    const use = { shadow: null, waiting: null, older: "Go back to it" }[one.state];
    const several = page.rule.versions.length > 1;
    return h("tr", {}, h("th", { scope: "row" }, one.version === null ? "–" : one.template ? "row" : `v${one.version}`), h("td", {}, stateBadge(one.state === "on" ? "in use" : one.state), one.state === "waiting" ? ` from ${timeText(one.timestamp)}` : null),
      h("td", { class: "wide-cell" }, foreign(one.error ? one.error.message : one.summary), one.template ? null : this.changes(one, before), one.comment ? h("p", { class: "hint" }, foreign(one.comment)) : null),
      h("td", {}, one.changedAt ? h("time", {}, timeText(one.changedAt)) : null, one.changedBy ? [" by ", foreign(one.changedBy)] : null),
      h("td", { class: "actions" }, one.state === "shadow" && write ? h("button", { type: "button", onclick: () => page.promote() }, "Promote") : null,
        write && several && one.state !== "on" && !one.error && use !== null ? h("button", { type: "button", onclick: () => page.use(one) }, use ?? (one.shadow ? "Use it as a shadow" : "Use it")) : null,
        write && several ? h("button", { type: "button", class: "danger quiet", onclick: () => page.remove(one.version) }, "Remove", h("span", { class: "hidden" }, ` version ${one.version}`)) : null));
  }

  // ------------------------------------------------------------------ the history of the query

  async load() {
    replace(this.history, h("h2", {}, "In the query"), loading("Reading the history …"));
    try {
      const { entries } = await post("/api/history", { id: this.page.id });
      const stored = new Set(this.page.rule.versions.map((one) => one.version));
      const seen = new Set();
      this.earlier = [];
      for (const one of entries) {
        if (one.source === undefined || stored.has(one.version) || seen.has(one.version)) continue;
        seen.add(one.version);
        this.earlier.push([`Version ${one.version}, earlier`, () => one.source]);
      }
      this.drawSelects();
      replace(this.history, h("h2", {}, "In the query"), entries.length ? h("ol", { class: "entries" }, entries.map((one) => this.entry(one, seen))) : h("p", { class: "dim" }, "The query has not used this rule yet."));
    } catch (error) {
      replace(this.history, h("h2", {}, "In the query"), error.status === 422 ? h("p", { class: "dim" }, "There is no history: ", foreign(error.message)) : errorBox(error));
    }
  }

  entry(one, earlier) {
    const { page } = this;
    const isBack = page.canEdit && !page.template && one.source !== undefined && earlier.delete(one.version);
    const version = one.version === undefined ? "" : one.before === undefined || one.before === one.version ? ` version ${one.version}` : ` version ${one.before} → ${one.version}`;
    return h("li", {}, h("time", {}, timeText(one.time)), h("div", {}, h("b", {}, one.what), version,
      one.by ? [" by ", foreign(one.by)] : null, one.reason ? h("p", { class: "hint" }, foreign(one.reason)) : null),
    isBack ? h("button", { type: "button", onclick: () => page.rollBack(one.version) }, `Go back to version ${one.version}`) : null);
  }
}
