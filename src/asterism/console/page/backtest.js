import { download, post } from "./api.js";
import { dailyChart } from "./daily.js";
import { empty, errorBox, foreign, h, number, plural, replace, timeText, toast } from "./dom.js";
import { keyText } from "./try.js";

const POLL = 1000;
const PAGE = 20;
// After this time of matching, it says why the first backtest on a machine takes long.
const SLOW = 10000;
const LABELS = /^(BOOLEAN|TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE)$/;

// Runs the text of the rule over the history, and compares it with the version in use.
export class BacktestTab {
  constructor(page) {
    this.page = page;
    const { session } = page.app;
    if (!session.hasBacktest) {
      this.element = empty("No history", "Start the console with --history to run rules over files of events.");
      return;
    }
    this.button = h("button", { type: "button", class: "primary", disabled: !page.app.canWrite, onclick: () => this.start() }, "Run the backtest");
    this.result = h("div", { class: "result" });
    this.label = h("select", { "aria-label": "Column that is true for the events to find" }, h("option", { value: "" }, "no label"));
    page.app.columns().then((columns) => this.label.append(...(columns ?? []).filter(([, type]) => LABELS.test(type)).map(([name]) => h("option", { value: name }, name))));
    this.element = h("div", { class: "backtest-tab" }, h("div", { class: "toolbar" }, this.button, session.time ? h("label", {}, "with the label ", this.label) : null,
      h("span", { class: "note" }, page.app.canWrite ? "" : "Your token may not run backtests.")),
    h("p", { class: "dim small" }, "The rule as it is in the editor runs over ", session.history.map((one, at) => [at ? ", " : "", h("code", {}, one)]),
      ", and its matches are compared with those of the version in use. A label is a column that is true, or 1, for the events that the rule should find. A match is correct if there is such an event of its key from its first to its last event."), this.result);
  }

  close() {
    clearTimeout(this.timer);
    this.isClosed = true;
  }

  async start() {
    this.button.disabled = true;
    this.stage = null;
    try {
      this.job = await post("/api/backtest", { text: this.page.text, id: this.page.id, label: this.label.value || null });
      this.show();
      this.poll();
    } catch (error) {
      this.button.disabled = false;
      const problem = error.answer?.problems?.[0];
      replace(this.result, errorBox(problem ? { message: "Correct the rule first", hint: `line ${problem.line}: ${problem.message}` } : error));
    }
  }

  poll() {
    clearTimeout(this.timer);
    if (this.isClosed) return;
    this.timer = setTimeout(async () => {
      try {
        this.job = await post("/api/backtest/state", { job: this.job.job });
        this.show();
      } catch (error) {
        if (error.status === 422) {
          this.button.disabled = false;
          replace(this.result, errorBox(error));
          return;
        }
      }
      if (["waiting", "running"].includes(this.job.state)) this.poll();
    }, POLL);
  }

  show() {
    const { job } = this;
    const isOver = !["waiting", "running"].includes(job.state);
    this.button.disabled = !isOver;
    if (!isOver) return this.progress(job);
    this.bar = null;
    if (job.state === "cancelled") return replace(this.result, h("p", { class: "empty" }, "The backtest was cancelled."));
    if (job.state === "failed") return replace(this.result, errorBox(job.error, "The backtest failed"));
    return replace(this.result, report(job, this.page));
  }

  progress(job) {
    if (!this.bar) {
      this.bar = h("progress", { max: 1, "aria-label": "Progress of the backtest" });
      this.words = h("p", { role: "status" });
      replace(this.result, h("div", { class: "progress" }, this.words, this.bar, h("button", { type: "button", onclick: async () => {
        this.job = await post("/api/backtest/cancel", { job: this.job.job });
        this.show();
      } }, "Cancel")));
    }
    const stage = job.state === "waiting" ? "waits for another backtest" : job.progress.stage ?? "starting";
    if (job.progress.total) this.bar.value = job.progress.done / job.progress.total;
    else this.bar.removeAttribute("value");
    if (this.stage !== stage) Object.assign(this, { stage, since: Date.now() });
    const isSlow = stage === "matching" && !job.progress.total && Date.now() - this.since > SLOW;
    const why = isSlow ? " The first backtest on a machine compiles code, which can take some minutes." : "";
    const words = `${stage.charAt(0).toUpperCase()}${stage.slice(1)}${job.progress.total ? `: ${job.progress.done} of ${plural(job.progress.total, "task")}` : " …"}${why}`;
    if (this.words.textContent !== words) this.words.textContent = words;
  }
}

function report(job, page) {
  const { result } = job;
  const rule = result.rule;
  const compared = result.compared && rule.old_version !== null;
  const period = result.first ? `${timeText(result.first)} – ${timeText(result.last)}, ${plural(result.days, "day")}` : "";
  if (rule.refused) return errorBox({ message: rule.refused }, "The rule cannot be used with these events");
  const rows = [
    ["Matches", "matches", "old_matches"], ["Keys", "keys", "old_keys"], ["Matches a day", "matches_per_day", "old_matches_per_day"], ["Most in a day", "most_in_a_day", "old_most_in_a_day"],
    ["Timed out", "timed_out", "old_timed_out"], ["Errors", "errors", "old_errors"],
  ];
  const shares = result.label ? [["Correct matches", "true_matches", number], ["Precision", "precision", share], ["Events found", "found", number], ["Recall", "recall", share]] : [];
  return [
    h("p", { class: "dim" }, `${number(result.events)} events`, period ? `, ${period}` : "", result.late ? `, ${plural(result.late, "event")} without a time` : "", `; ${job.seconds} s`),
    result.label ? h("p", { class: "verdict" }, h("b", {}, `${number(rule.true_matches)} of ${plural(rule.matches, "match", "matches")}`), " with an event of ", h("code", {}, result.label), `: precision ${share(rule.precision)}. `,
      h("b", {}, `${number(rule.found)} of ${plural(result.labelled, "event")}`), ` found: recall ${share(rule.recall)}.`) : null,
    rule.errors ? errorBox({ message: `Disabled in ${plural(rule.errors, "key group")}`, detail: rule.error }) : null,
    compared ? differences(rule) : h("p", { class: "notice" }, "No version is in use to compare with."),
    h("div", { class: "scroll" }, h("table", { class: "numbers" }, h("thead", {}, h("tr", {}, h("td", {}), compared ? h("th", { scope: "col" }, `In use, v${rule.old_version}`) : null, h("th", { scope: "col" }, compared ? "As edited" : "Value"))),
      h("tbody", {}, rows.map(([name, now, before]) => h("tr", {}, h("th", { scope: "row" }, name), compared ? h("td", {}, number(rule[before])) : null,
        h("td", {}, number(rule[now])))), shares.map(([name, field, text]) => h("tr", {}, h("th", { scope: "row" }, name), compared ? h("td", {}, text(rule[`old_${field}`])) : null, h("td", {}, text(rule[field]))))))),
    result.daily.length ? dailyChart(result, compared) : null,
    new FoundMatches(job, page, compared).element,
  ];
}

function share(value) {
  return value === null || value === undefined ? "–" : `${(value * 100).toLocaleString("en", { maximumFractionDigits: 1 })} %`;
}

// What an example of a match and the same match in the list have in common.
function nameOf({ difference, key, start, end, measures }) {
  return JSON.stringify([difference, key, start, end, Object.entries(measures).sort()]);
}

// All matches, a page at a time. Of some of them, the examples, the report has the events.
class FoundMatches {
  constructor(job, page, compared) {
    Object.assign(this, { job: job.job, page, from: 0, label: job.result.label });
    this.examples = new Map(job.result.examples.map((one) => [nameOf(one), one]));
    const which = [["", "all matches"], ...(compared ? [["added", "added"], ["removed", "removed"], ["kept", "kept"]] : []), ...(this.label ? [["true", "right"], ["false", "wrong"]] : [])];
    this.select = h("select", { "aria-label": "Which matches", onchange: () => this.show(0) }, which.map(([value, text]) => h("option", { value }, text)));
    this.table = h("div", {});
    this.count = h("span", { class: "dim", role: "status" });
    this.before = h("button", { type: "button", onclick: () => this.show(this.from - PAGE) }, "Previous");
    this.after = h("button", { type: "button", onclick: () => this.show(this.from + PAGE) }, "Next");
    const save = (format, text) => h("button", { type: "button", onclick: () => this.save(format) }, text);
    const { listed, ofMatches } = job.result;
    const cut = listed < ofMatches ? h("p", { class: "notice" }, `Only the first ${number(listed)} of ${plural(ofMatches, "match", "matches")} by time are listed and downloaded. The numbers above count all of them.`) : null;
    this.element = h("section", { class: "found-matches" }, ...(cut ? [cut] : []), h("div", { class: "toolbar" }, h("h2", {}, "Matches"), this.select, this.count, h("span", { class: "grow" }), save("csv", "Download CSV"), save("parquet", "Parquet")),
      this.table, h("div", { class: "toolbar" }, this.before, this.after));
    this.show(0);
  }

  async save(format) {
    try {
      await download("/api/backtest/download", { job: this.job, format }, `${this.page.id ?? "rule"}-matches.${format}`);
    } catch (error) {
      toast(error.message, "bad");
    }
  }

  async show(from) {
    const { value } = this.select;
    const wanted = value === "true" || value === "false" ? { true: value === "true" } : value ? { difference: value } : {};
    try {
      const { matches, of } = await post("/api/backtest/matches", { job: this.job, from: Math.max(from, 0), count: PAGE, ...wanted });
      this.from = Math.max(from, 0);
      this.draw(matches, of);
    } catch (error) {
      replace(this.table, errorBox(error));
    }
  }

  draw(matches, of) {
    this.count.textContent = of ? `${number(this.from + 1)}–${number(this.from + matches.length)} of ${number(of)}` : "none";
    this.before.disabled = this.from === 0;
    this.after.disabled = this.from + matches.length >= of;
    if (!matches.length) return replace(this.table, h("p", { class: "dim" }, "No matches."));
    const names = Object.keys(matches[0].measures);
    const differs = matches.some((one) => one.difference !== "added");
    const heads = ["Key", "First event", "Last event", ...(this.label ? ["Label"] : []), ...(differs ? ["Difference"] : []), ...names, ""];
    return replace(this.table, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Matches" }, h("table", {}, h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, name ? foreign(name) : h("span", { class: "hidden" }, "Open"))))),
      h("tbody", {}, matches.map((one) => h("tr", {}, h("th", { scope: "row" }, foreign(one.key.length ? keyText(one.key) : "all events")), h("td", {}, timeText(one.start)), h("td", {}, timeText(one.end)),
        this.label ? h("td", {}, h("span", { class: one.true ? "state good" : "state dim" }, one.true ? "right" : "wrong")) : null, differs ? h("td", {}, one.difference) : null,
        names.map((name) => h("td", {}, one.measures[name] === null ? h("i", { class: "dim" }, "NULL") : foreign(one.measures[name]))),
        h("td", { class: "actions" }, h("button", { type: "button", class: "small", onclick: () => this.page.openMatch(one) }, "Events and trace", h("span", { class: "hidden" }, ` of ${keyText(one.key) || "all events"}, ${timeText(one.start)}`)), this.events(one))))))));
  }

  events(match) {
    const example = this.examples.get(nameOf(match));
    if (!example?.events.length) return null;
    return h("details", {}, h("summary", {}, plural(example.events.length + example.moreEvents, "event")), h("ul", { class: "event-list" }, example.events.map(([stage, text]) => h("li", {}, foreign(stage, "stage-name"), " ", foreign(text))), example.moreEvents ? h("li", {}, `and ${number(example.moreEvents)} more`) : null));
  }
}

function differences(rule) {
  const { added, removed, kept } = rule;
  if (added === null) return h("p", { class: "notice" }, "One of the versions was refused, so they are not compared.");
  const total = added + removed + kept;
  const parts = [["kept", kept], ["added", added], ["removed", removed]];
  const bar = h("div", { class: "bar-chart", role: "img", "aria-label": `${number(kept)} kept, ${number(added)} added, ${number(removed)} removed` }, parts.filter(([, count]) => count).map(([name, count]) => {
    const part = h("span", { class: name });
    part.style.flexGrow = String(count / total);
    return part;
  }));
  return h("div", { class: "differences" }, total ? bar : h("p", { class: "dim" }, "Neither version finds a match."), h("ul", { class: "legend" }, parts.map(([name, count]) => h("li", { class: name }, h("b", {}, number(count)), ` ${name}`))));
}
