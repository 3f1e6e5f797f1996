import { byId, foreign, h, number, plural, replace, timeText } from "./dom.js";
import { ruleLink } from "./places.js";
import { sparkline } from "./sparkline.js";

const MAX_SHOWN = 300;
const STATES = {
  "in force": "good", on: "good", "in use": "good", waiting: "warn", pending: "warn", shadow: "info", expired: "dim", off: "dim", older: "dim",
  disabled: "bad", killed: "bad", refused: "bad", invalid: "bad", "not in the query": "warn",
};

export function stateKind(state) {
  return STATES[state] ?? "info";
}

// A rule with a shadow is listed among the shadows, too.
function kindsOf({ rule, state }) {
  return new Set(rule.shadow === null ? [stateKind(state)] : [stateKind(state), "info"]);
}

export function stateBadge(state, title = "") {
  return h("span", { class: `state ${stateKind(state)}`, title }, state);
}

// What became of the version of a rule: in the query, if there is one, and otherwise in the source.
export function stateOf(app, rule) {
  if (rule.state === "wrong" || rule.error) return rule.state === "off" ? "off" : "invalid";
  if (!["on", "waiting", "older"].includes(rule.state) || !app.status) return rule.state;
  const found = app.states(rule.id).find((one) => one.version === rule.version && !one.shadow);
  return found ? found.state : rule.state === "on" ? "not in the query" : rule.state;
}

// The version in use: in the query, if there is one, and otherwise in the source.
export function inUse(app, versions) {
  return versions.find((one) => versions.length > 1 && stateOf(app, one) === "in force") ?? versions.find((one) => one.state === "on");
}

// The version that runs beside the one in use, and whose matches are kept apart.
export function shadowOf(versions) {
  return versions.find((one) => one.state === "shadow");
}

function shadowText(rule) {
  return rule.state === "shadow" ? "" : rule.template ? "with a shadow" : `shadow v${rule.shadow}`;
}

// The versions that wait for their time.
export function waitingTexts(app, versions) {
  return versions.filter((one) => one.timestamp && versions.length > 1 && stateOf(app, one) === "waiting").map((one) => `v${one.version} from ${timeText(one.timestamp)}`);
}

// The labels without the title and the description, which have places of their own.
export function otherLabels(rule) {
  return Object.entries(rule.labels ?? {}).filter(([name]) => name !== "title" && name !== "description");
}

export class RuleList {
  constructor(app, element) {
    this.app = app;
    this.wanted = "";
    this.only = "all";
    this.field = h("input", {
      type: "search", placeholder: "Search rules, labels", "aria-label": "Search rules", "aria-keyshortcuts": "/",
      oninput: () => {
        this.wanted = this.field.value.trim().toLowerCase();
        this.draw();
      },
      onkeydown: (event) => {
        if (event.key === "ArrowDown" || event.key === "Enter") {
          event.preventDefault();
          this.rows.querySelector("a")?.focus();
        }
      },
    });
    this.filter = h("div", { class: "filters", role: "group", "aria-label": "Show" });
    this.rows = h("ul", { class: "rules" });
    this.foot = h("p", { class: "foot" });
    this.add = h("a", { class: "button primary small", href: "#/new", title: "New rule (n)", hidden: true }, "New rule");
    // On a narrow screen, they are below the list.
    const alerts = h("button", { type: "button", class: "chip to-alerts", onclick: () => {
      byId("detail").scrollIntoView();
      byId("detail").focus({ preventScroll: true });
    } }, "Alerts ↓");
    replace(element, h("div", { class: "list-head" }, h("div", { class: "search" }, this.field, this.add), this.filter, alerts), this.rows, this.foot);
  }

  // One row for each id: the version in use, or else the highest, with the versions that wait.
  grouped() {
    const found = new Map();
    for (const rule of this.app.rules) found.set(rule.id, [...(found.get(rule.id) ?? []), rule]);
    const rank = (one) => (one.state === "wrong" ? 1e10 : 0) + (one.version ?? -1);
    return [...found.values()].map((versions) => ({
      ...(inUse(this.app, versions) ?? versions.reduce((one, other) => (rank(other) >= rank(one) ? other : one))),
      waiting: waitingTexts(this.app, versions),
      shadow: shadowOf(versions)?.version ?? null,
    }));
  }

  draw() {
    const { app } = this;
    if (!app.session) return;
    const all = this.grouped().map((rule) => ({ rule, state: stateOf(app, rule) }));
    const kinds = { all: all.length };
    for (const one of all) for (const kind of kindsOf(one)) kinds[kind] = (kinds[kind] ?? 0) + 1;
    const names = { all: "All", good: "In use", info: "Shadows", warn: "Waiting", bad: "Problems", dim: "Off" };
    if (!kinds[this.only]) this.only = "all";
    const buttons = Object.keys(names).filter((kind) => kinds[kind] || kind === "all").map((kind) =>
      [kind, `${names[kind]} ${number(kinds[kind])}`, this.only === kind]);
    const drawn = JSON.stringify(buttons);
    if (this.drawn !== drawn) {
      this.drawn = drawn;
      const focused = document.activeElement?.dataset?.kind;
      replace(this.filter, buttons.map(([kind, text, pressed]) => h("button", {
        type: "button", class: "chip", "aria-pressed": String(pressed), "data-kind": kind,
        onclick: () => {
          this.only = kind;
          this.draw();
        },
      }, text)));
      if (focused) this.filter.querySelector(`[data-kind="${names[focused] ? focused : "all"}"]`)?.focus();
    }
    this.add.hidden = !app.canWrite;
    const fits = ({ rule, state }) => (this.only === "all" || kindsOf({ rule, state }).has(this.only)) &&
      [rule.id, rule.summary ?? "", ...Object.entries(rule.labels ?? {}).flat()].some((text) => text.toLowerCase().includes(this.wanted));
    const found = all.filter(fits);
    this.ids = found.map(({ rule }) => rule.id);
    this.drawRows(found.slice(0, MAX_SHOWN));
    replace(this.foot, all.length === 0 ? "There are no rules." : found.length === 0 ? "No matching rules." :
      found.length > MAX_SHOWN ? `The first ${MAX_SHOWN} of ${number(found.length)} rules; search to see others.` : null);
  }

  // Rows that have not changed stay as they are, so that a click or the focus is not lost.
  drawRows(found) {
    const { app } = this;
    const tab = app.page?.tab && app.page.id !== null ? app.page.tab : "overview";
    const kept = this.kept ?? new Map();
    this.kept = new Map();
    const rows = found.map(({ rule, state }) => {
      const isCurrent = app.page?.id === rule.id;
      const key = JSON.stringify([rule, state, isCurrent, tab, app.matchesOf(rule.id), app.earlierOf(rule.id), app.series.matches[rule.id]]);
      const row = kept.get(key) ?? this.row(rule, state, isCurrent, tab);
      this.kept.set(key, row);
      return row;
    });
    const before = [...this.rows.children];
    if (rows.length === before.length && rows.every((row, at) => row === before[at])) return;
    const focused = this.rows.contains(document.activeElement) ? this.ids.indexOf(document.activeElement.ruleId) : -1;
    replace(this.rows, rows);
    if (focused >= 0) this.rows.querySelectorAll("a")[focused]?.focus();
  }

  row(rule, state, isCurrent, tab) {
    const { app } = this;
    const labels = otherLabels(rule).slice(0, 3);
    const values = app.series.matches[rule.id];
    const count = app.matchesOf(rule.id), earlier = app.earlierOf(rule.id);
    const since = "since the checkpoint was created";
    const link = h("a", { href: ruleLink(rule.id, tab), "aria-current": isCurrent ? "page" : null },
      h("span", { class: "line" }, h("span", { class: `dot ${stateKind(state)}`, "aria-hidden": "true" }), foreign(rule.id, "name"),
        rule.version === null || rule.template ? null : h("span", { class: "version" }, `v${rule.version}`), h("span", { class: "grow" }),
        values ? sparkline(values, app.seconds(), { width: 72, height: 18 }) : null),
      rule.labels?.title ? h("span", { class: "line rule-title" }, foreign(rule.labels.title, "cut")) : null,
      h("span", { class: "line sub" }, h("span", { class: `word ${stateKind(state)}` }, state),
        rule.waiting.map((text) => h("span", { class: "word warn" }, text)),
        rule.shadow === null ? null : h("span", { class: "word info" }, shadowText(rule)),
        rule.error ? foreign(rule.error.message, "cut") : labels.map(([name, value]) => h("span", { class: "label", title: name }, foreign(value || name))),
        h("span", { class: "grow" }),
        app.status ? h("span", { class: "count", title: earlier ? `${number(count)} of the versions in the query and ${number(earlier)} of earlier ones, ${since}` : `matches ${since}` }, plural(count + earlier, "match", "matches"), earlier && rule.version !== null ? ` (${number(count)} of v${rule.version})` : null) : null));
    link.ruleId = rule.id;
    return h("li", {}, link);
  }

  search() {
    this.field.focus();
    this.field.select();
  }

  move(step) {
    if (!this.ids?.length) return;
    const at = this.ids.indexOf(this.app.page?.id);
    const next = at < 0 ? (step > 0 ? 0 : this.ids.length - 1) : Math.min(Math.max(at + step, 0), this.ids.length - 1);
    location.hash = ruleLink(this.ids[next], this.app.page?.tab ?? "overview");
    byId("list").querySelectorAll(".rules a")[next]?.scrollIntoView({ block: "nearest" });
    byId("detail").focus();
  }
}
