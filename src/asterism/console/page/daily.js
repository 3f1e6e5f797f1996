import { foreign, h, number, plural, replace, svg } from "./dom.js";
import { post } from "./api.js";
import { ruleLink } from "./places.js";

const MAX_BARS = 120;
const HOUR = 3600000;
const DAY = 24 * HOUR;
const SPANS = [["hour", HOUR, 48, "the last 48 hours, by hour"], ["day", DAY, 60, "the last 60 days, by day"]];

// Bars over time, each with one number, or with two that are compared, and the numbers as a table.
function barChart({ heading, label, bars, words, head, rows, first, last, legend = null }) {
  const most = Math.max(1, ...bars.flatMap(({ values }) => values));
  const width = 640, height = 120, step = width / bars.length;
  const chart = svg("svg", { class: "daily", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}, at most ${number(most)}` });
  bars.forEach((one, place) => {
    one.values.forEach((value, at) => {
      if (!value) return;
      const wide = step / one.values.length, tall = Math.max(2, (value / most) * (height - 4));
      const kind = at === one.values.length - 1 ? "bar-now" : "bar-before";
      const rect = svg("rect", { class: kind, x: (place * step + at * wide).toFixed(2), y: (height - tall).toFixed(2), width: Math.max(0.8, wide - 0.6).toFixed(2), height: tall.toFixed(2) });
      rect.append(svg("title", {}, words(one)));
      chart.append(rect);
    });
  });
  return h("section", { class: "bars" }, heading,
    h("figure", { class: "daily-chart" }, h("span", { class: "dim small" }, number(most)), chart, h("figcaption", { class: "dim small" }, h("span", {}, first), legend, h("span", {}, last))),
    h("details", {}, h("summary", {}, "As a table"), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${label}, as a table` }, h("table", { class: "numbers" }, h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows.map(([name, ...values]) => h("tr", {}, h("th", { scope: "row" }, name), values.map((value) => h("td", {}, number(value))))))))));
}

// A bar for each day, or for several days of a long history. Beside it, that of the version in use.
export function dailyChart(result, compared) {
  const first = Date.parse(result.first.slice(0, 10)), last = Date.parse(result.last.slice(0, 10));
  const days = Math.round((last - first) / DAY) + 1;
  const each = Math.ceil(days / MAX_BARS);
  const bars = Array.from({ length: Math.ceil(days / each) }, (_, at) => ({ at: first + at * each * DAY, values: compared ? [0, 0] : [0] }));
  for (const [day, now, before] of result.daily) {
    const bar = bars[Math.floor((Date.parse(day) - first) / DAY / each)];
    if (!bar) continue;
    bar.values[compared ? 1 : 0] += now;
    if (compared) bar.values[0] += before;
  }
  const text = (time) => new Date(time).toISOString().slice(0, 10);
  const unit = each === 1 ? "day" : `${each} days`;
  return barChart({
    heading: h("h2", {}, `Matches by ${unit}`), label: `Matches by ${unit}, from ${text(first)} to ${text(last)}`, bars, first: text(first), last: text(last),
    words: ({ at, values }) => `${text(at)}: ${plural(values.at(-1), "match", "matches")}${compared ? `, ${number(values[0])} of the version in use` : ""}`,
    head: ["Day", ...(compared ? ["As edited", "In use"] : ["Matches"])], rows: result.daily.map(([day, now, before]) => [day, now, ...(compared ? [before] : [])]),
    legend: compared ? h("ul", { class: "legend" }, h("li", { class: "now" }, "as edited"), h("li", { class: "before" }, "in use")) : null,
  });
}

// The matches that the query has reported since the console began to count, of a rule or of all rules.
export class Alerts {
  constructor(app, id = null) {
    Object.assign(this, { app, id, unit: 0 });
    this.element = h("div", { class: "alerts" });
    this.load();
  }

  // Reads them again if there are new matches, and otherwise once a minute.
  update() {
    const total = this.app.matchesOf(this.id);
    if (total === this.total && Date.now() - this.loadedAt < 60000) return;
    this.load();
  }

  async load() {
    this.total = this.app.matchesOf(this.id);
    this.loadedAt = Date.now();
    try {
      this.alerts = await post("/api/alerts", { id: this.id });
      this.draw();
    } catch {
      // The status says why the query cannot be read.
    }
  }

  draw() {
    const { since, until, hours, rules } = this.alerts;
    if (since === null) return;
    const heading = this.id === null ? "Alerts of all rules" : "Alerts";
    const text = (time, digits = 16) => new Date(time).toISOString().slice(0, digits).replace("T", " ");
    const begin = `since ${text(Date.parse(since))}, when the console began to count`;
    if (!hours.length) return void replace(this.element, h("section", { class: "bars" }, h("h2", {}, heading), h("p", { class: "dim" }, `None ${begin}.`)));
    const [unit, size, count] = SPANS[this.unit];
    const digits = unit === "day" ? 10 : 16;
    const last = Math.floor(Date.parse(until) / size);
    const first = Math.max(last - count + 1, Math.floor(Date.parse(since) / size));
    const bars = Array.from({ length: last - first + 1 }, (_, at) => ({ at: (first + at) * size, values: [0] }));
    for (const [hour, matches] of hours) {
      const bar = bars[Math.floor(Date.parse(hour) / size) - first];
      if (bar) bar.values[0] += matches;
    }
    const isOpen = this.element.querySelector("details")?.open ?? false;
    const focused = this.element.contains(document.activeElement) ? document.activeElement.tagName : null;
    const select = h("select", { "aria-label": "Time of the alerts", onchange: () => {
      this.unit = select.selectedIndex;
      this.draw();
    } }, SPANS.map(([, , , name], at) => h("option", { selected: at === this.unit }, name)));
    const chart = barChart({
      heading: h("div", { class: "toolbar" }, h("h2", {}, heading), select),
      label: `Alerts by ${unit}, from ${text(first * size, digits)} to ${text(last * size, digits)}`, bars, first: text(first * size, digits), last: text(last * size, digits),
      words: ({ at, values }) => `${text(at, digits)}: ${plural(values[0], "match", "matches")}`,
      head: [unit === "day" ? "Day" : "Hour", "Matches"], rows: bars.filter(({ values }) => values[0]).map(({ at, values }) => [text(at, digits), ...values]),
    });
    chart.querySelector("details").open = isOpen;
    chart.append(h("p", { class: "dim small" }, `Matches by the time at which the query reported them, in UTC, ${begin}.`));
    replace(this.element, chart, this.id === null && rules.length ? this.byRule(rules) : null);
    if (focused) this.element.querySelector(focused.toLowerCase())?.focus();
  }

  byRule(rules) {
    return h("section", { class: "bars" }, h("h2", {}, "Alerts by rule"), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Alerts by rule" }, h("table", { class: "numbers" },
      h("thead", {}, h("tr", {}, ["Rule", "Last 24 hours", "Last 7 days", "Last 60 days"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rules.map(([id, ...counts]) => h("tr", {}, h("th", { scope: "row" }, h("a", { href: ruleLink(id) }, foreign(id))), counts.map((count) => h("td", {}, number(count)))))))));
  }
}
