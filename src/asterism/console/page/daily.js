import { h, number, plural, svg } from "./dom.js";

const MAX_BARS = 120;
const DAY = 86400000;

// A bar for each day, or for several days of a long history. Beside it, that of the version in use.
export function dailyChart(result, compared) {
  const first = Date.parse(result.first.slice(0, 10)), last = Date.parse(result.last.slice(0, 10));
  const days = Math.round((last - first) / DAY) + 1;
  const each = Math.ceil(days / MAX_BARS);
  const bars = Array.from({ length: Math.ceil(days / each) }, (_, at) => ({ at: first + at * each * DAY, now: 0, before: 0 }));
  for (const [day, now, before] of result.daily) {
    const bar = bars[Math.floor((Date.parse(day) - first) / DAY / each)];
    if (!bar) continue;
    bar.now += now;
    bar.before += before;
  }
  const most = Math.max(1, ...bars.flatMap(({ now, before }) => [now, before]));
  const width = 640, height = 120, step = width / bars.length;
  const text = (time) => new Date(time).toISOString().slice(0, 10);
  const unit = each === 1 ? "day" : `${each} days`;
  const label = `Matches by ${unit}, at most ${number(most)}, from ${text(first)} to ${text(last)}`;
  const chart = svg("svg", { class: "daily", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  const bar = (at, value, kind, from, wide, title) => {
    if (!value) return;
    const tall = Math.max(2, (value / most) * (height - 4));
    const rect = svg("rect", { class: kind, x: (at * step + from * step).toFixed(2), y: (height - tall).toFixed(2), width: Math.max(0.8, wide * step - 0.6).toFixed(2), height: tall.toFixed(2) });
    const words = svg("title");
    words.append(title);
    rect.append(words);
    chart.append(rect);
  };
  bars.forEach(({ at, now, before }, place) => {
    const title = `${text(at)}: ${plural(now, "match", "matches")}${compared ? `, ${number(before)} of the version in use` : ""}`;
    if (compared) bar(place, before, "bar-before", 0, 0.5, title);
    bar(place, now, "bar-now", compared ? 0.5 : 0, compared ? 0.5 : 1, title);
  });
  const rows = result.daily.map(([day, now, before]) => h("tr", {}, h("th", { scope: "row" }, day), h("td", {}, number(now)), compared ? h("td", {}, number(before)) : null));
  return h("section", {}, h("h2", {}, `Matches by ${unit}`),
    h("figure", { class: "daily-chart" }, h("span", { class: "dim small" }, number(most)), chart, h("figcaption", { class: "dim small" }, h("span", {}, text(first)), compared ? h("ul", { class: "legend" }, h("li", { class: "now" }, "as edited"), h("li", { class: "before" }, "in use")) : null, h("span", {}, text(last)))),
    h("details", {}, h("summary", {}, "As a table"), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Matches by day" }, h("table", { class: "numbers" }, h("thead", {}, h("tr", {}, ["Day", compared ? "As edited" : "Matches", ...(compared ? ["In use"] : [])].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows)))));
}
