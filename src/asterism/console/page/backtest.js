import { post } from "./api.js";
import { empty, errorBox, foreign, h, number, plural, replace, timeText } from "./dom.js";
import { keyText } from "./try.js";

const POLL = 1000;

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
    this.element = h("div", { class: "backtest-tab" }, h("div", { class: "toolbar" }, this.button,
      h("span", { class: "note" }, page.app.canWrite ? "" : "Your token may not run backtests.")),
    h("p", { class: "dim small" }, "The rule as it is in the editor runs over ", session.history.map((one, at) => [at ? ", " : "", h("code", {}, one)]),
      ", and its matches are compared with those of the version in use. The history is read by Spark, which takes a while to start."), this.result);
  }

  close() {
    clearTimeout(this.timer);
    this.isClosed = true;
  }

  async start() {
    this.button.disabled = true;
    try {
      this.job = await post("/api/backtest", { text: this.page.text, id: this.page.id });
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
    return replace(this.result, report(job));
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
    const words = `${stage.charAt(0).toUpperCase()}${stage.slice(1)}${job.progress.total ? `: ${job.progress.done} of ${plural(job.progress.total, "task")}` : " …"}`;
    if (this.words.textContent !== words) this.words.textContent = words;
  }
}

function report(job) {
  const { result } = job;
  const rule = result.rule;
  const compared = result.compared && rule.old_version !== null;
  const period = result.first ? `${timeText(result.first)} – ${timeText(result.last)}, ${plural(result.days, "day")}` : "";
  if (rule.refused) return errorBox({ message: rule.refused }, "The rule cannot be used with these events");
  const rows = [
    ["Matches", "matches", "old_matches"], ["Keys", "keys", "old_keys"], ["Matches a day", "matches_per_day", "old_matches_per_day"], ["Most in a day", "most_in_a_day", "old_most_in_a_day"],
    ["Timed out", "timed_out", "old_timed_out"], ["Errors", "errors", "old_errors"],
  ];
  return [
    h("p", { class: "dim" }, `${number(result.events)} events`, period ? `, ${period}` : "", result.late ? `, ${plural(result.late, "event")} without a time` : "", `; ${job.seconds} s`),
    rule.errors ? errorBox({ message: `Disabled in ${plural(rule.errors, "key group")}`, detail: rule.error }) : null,
    compared ? differences(rule) : h("p", { class: "notice" }, "No version is in use to compare with."),
    h("div", { class: "scroll" }, h("table", { class: "numbers" }, h("thead", {}, h("tr", {}, h("td", {}), compared ? h("th", { scope: "col" }, `In use, v${rule.old_version}`) : null, h("th", { scope: "col" }, compared ? "As edited" : "Value"))),
      h("tbody", {}, rows.map(([name, now, before]) => h("tr", {}, h("th", { scope: "row" }, name), compared ? h("td", {}, number(rule[before])) : null,
        h("td", {}, number(rule[now]))))))),
    ...examples(result, compared ? [["added", "Added matches", rule.added], ["removed", "Removed matches", rule.removed]] : [["added", "Matches", rule.matches]]),
  ];
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

function examples(result, groups) {
  return groups.map(([difference, title, total]) => {
    const some = result.examples.filter((one) => one.difference === difference);
    if (!some.length) return null;
    return h("section", {}, h("h2", {}, title, h("span", { class: "dim" }, total > some.length ? ` ${number(some.length)} of ${number(total)}` : ` ${number(total)}`)), h("ol", { class: "matches" }, some.map((one) =>
      h("li", { class: `match ${difference}` }, h("p", { class: "match-head" }, h("b", {}, one.key.length ? foreign(keyText(one.key)) : "all events"), h("span", { class: "dim" }, `${timeText(one.start)} – ${timeText(one.end)}`)),
        Object.keys(one.measures).length ? h("dl", { class: "measures" }, Object.entries(one.measures).map(([name, value]) => h("div", {}, h("dt", {}, foreign(name)), h("dd", {}, value === null ? h("i", {}, "NULL") : foreign(value))))) : null,
        one.events.length ? h("details", {}, h("summary", {}, plural(one.events.length + one.moreEvents, "event")), h("ul", { class: "event-list" }, one.events.map(([stage, text]) => h("li", {}, foreign(stage, "stage-name"), " ", foreign(text))), one.moreEvents ? h("li", {}, `and ${number(one.moreEvents)} more`) : null)) : null))));
  });
}
