import { post } from "./api.js";
import { BacktestTab } from "./backtest.js";
import { Alerts } from "./daily.js";
import { dialog, errorBox, foreign, h, loading, number, plural, replace, timeText, toast } from "./dom.js";
import { Editor } from "./editor/editor.js";
import { RuleForm } from "./form.js";
import { inUse, otherLabels, shadowOf, stateBadge, stateOf, waitingTexts } from "./list.js";
import { ruleLink } from "./places.js";
import { sparkline } from "./sparkline.js";
import { TryTab } from "./try.js";
import { VersionsTab } from "./versions.js";

const TABS = [["overview", "Overview"], ["source", "Source"], ["try", "Try"], ["backtest", "Backtest"], ["versions", "Versions"]];
const DEBOUNCE = 350;
const RETRY = 3000;
// After this time, a check says that it takes longer; and after this time, one that the console had no time for is repeated.
const SLOW = 3000;
const BUSY = 5000;
// Texts that were not saved when another rule was chosen.
const drafts = new Map();

export class RulePage {
  constructor(app, element, name, id, tab) {
    Object.assign(this, { app, element, name, id, tab, rule: null, text: "", saved: "", checked: null, error: null });
    this.panels = {};
    replace(element, loading());
    this.load();
  }

  get isNew() {
    return this.id === null;
  }

  // The call of a function is shown and not edited, and so is a template whose rows are in a table of their own.
  get canEdit() {
    return this.app.canWrite && this.current?.kind !== "call" && (this.template === null || this.template.canEdit);
  }

  // The template of the rule, whose text is then that of the page.
  get template() {
    return this.rule?.template ?? null;
  }

  get shadow() {
    return shadowOf(this.rule.versions);
  }

  get isChanged() {
    return this.text !== this.saved;
  }

  // The version that the page is about: that in use, or else the highest.
  get current() {
    const versions = this.rule?.versions ?? [];
    return inUse(this.app, versions) ?? versions[0];
  }

  close() {
    this.closed = true;
    if (this.rule && this.isChanged) drafts.set(this.name, { tag: (this.template ?? this.rule).tag, text: this.text });
    else drafts.delete(this.name);
    clearTimeout(this.timer);
    this.checks?.abort();
    this.closePanels();
  }

  // What the views have asked for is of no use any more.
  closePanels() {
    for (const panel of Object.values(this.panels)) panel.close?.();
  }

  async load(kept = null) {
    try {
      if (this.isNew) {
        this.rule = { id: null, tag: null, versions: [] };
        await this.app.columns();
        this.text = example(this.app.session, new Set(this.app.rules.map((one) => one.id)));
        this.saved = this.text;
      } else {
        this.rule = await post("/api/rule", { id: this.id });
        this.text = this.saved = (this.template ? this.template.text : this.current.text) ?? "";
      }
    } catch (error) {
      if (!this.closed) replace(this.element, back(), errorBox(error));
      return;
    }
    if (this.closed) return;
    const draft = drafts.get(this.name);
    if (draft && draft.tag === (this.template ?? this.rule).tag) this.text = draft.text;
    if (kept !== null) this.text = kept;
    drafts.delete(this.name);
    this.draw();
    this.check();
  }

  draw() {
    document.title = `${this.isNew ? "New rule" : this.id} – Asterism rules`;
    this.head = h("div", { class: "rule-head" });
    const tabs = this.isNew ? TABS.filter(([name]) => ["source", "try", "backtest"].includes(name)) : TABS;
    this.tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Views of the rule", onkeydown: (event) => this.tabKey(event) }, tabs.map(([name, text]) => h("button", {
      type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panel", onclick: () => this.go(name),
    }, text)));
    this.panel = h("section", { class: "panel", id: "panel", role: "tabpanel", tabindex: "0" });
    replace(this.element, back(), this.head, this.tabs, this.panel);
    this.panels = {};
    this.drawHead();
    this.choose(tabs.some(([name]) => name === this.tab) ? this.tab : tabs[0][0]);
    if (this.isNew && this.tab === "source") this.panels.source.editor?.area.focus();
  }

  // Shows the events of a match of the history, and their trace.
  openMatch(match) {
    this.panels.try ??= new TryTab(this);
    this.go("try");
    this.panels.try.open(match);
  }

  // With the next Tab, the first control of the view is reached.
  focusPanel() {
    this.panel?.focus();
  }

  tabKey(event) {
    const tabs = [...this.tabs.children];
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
    next.focus();
    next.click();
  }

  go(tab) {
    location.hash = this.isNew ? `#/new/${tab}` : ruleLink(this.id, tab);
  }

  choose(tab) {
    if (!this.tabs) {
      this.tab = tab;
      return;
    }
    const chosen = this.tabs.querySelector(`#tab-${CSS.escape(tab)}`) ? tab : this.isNew ? "source" : "overview";
    this.tab = chosen;
    for (const button of this.tabs.children) {
      const isChosen = button.id === `tab-${chosen}`;
      button.setAttribute("aria-selected", String(isChosen));
      button.tabIndex = isChosen ? 0 : -1;
      if (isChosen) button.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    this.panel.setAttribute("aria-labelledby", `tab-${chosen}`);
    const make = { overview: () => new OverviewTab(this), source: () => new SourceTab(this), try: () => new TryTab(this), backtest: () => new BacktestTab(this), versions: () => new VersionsTab(this) };
    this.panels[chosen] ??= make[chosen]();
    replace(this.panel, this.panels[chosen].element);
    this.panels[chosen].shown?.();
  }

  // New rules or a new status have arrived.
  update() {
    if (!this.head || this.closed) return;
    this.drawHead();
    this.panels.overview?.update();
  }

  drawHead() {
    const { app } = this;
    const rule = this.current;
    const state = rule ? stateOf(app, rule) : null;
    const listed = this.isNew ? null : app.rules.filter((one) => one.id === this.id && one.state === "on");
    const isOutdated = listed && !this.isChanged && rule && listed.length && !this.rule.versions.some((one) => one.version === listed[0].version);
    const inQuery = app.canWrite && rule && app.states(this.id).some((one) => one.state !== "killed" && one.state !== "refused");
    const waiting = waitingTexts(app, this.rule?.versions ?? []);
    const shadow = this.isNew ? null : this.shadow;
    const drawn = JSON.stringify([state, waiting, shadow?.version, rule?.version, rule?.labels, this.isChanged, isOutdated, this.checked?.effect, inQuery]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const write = this.canEdit && rule && !this.template;
    replace(this.head,
      h("div", { class: "title" }, h("h1", {}, this.isNew ? "New rule" : foreign(this.id)),
        rule && rule.version !== null && !rule.template ? h("span", { class: "version big" }, `v${rule.version}`) : null,
        state ? stateBadge(state) : null,
        waiting.map((text) => h("span", { class: "state warn" }, text)),
        shadow && shadow !== rule ? h("span", { class: "state info" }, rule.template ? "with a shadow" : `shadow v${shadow.version}`) : null,
        this.isChanged ? h("span", { class: "state info" }, "not saved") : null,
        h("span", { class: "grow" }),
        write && shadow ? h("button", { type: "button", class: "primary", onclick: () => this.promote() }, `Promote v${shadow.version}`) : null,
        app.canWrite && this.template?.shadow ? h("button", { type: "button", class: "primary", onclick: () => this.promoteTemplate() }, "Promote the template") : null,
        inQuery ? h("button", { type: "button", class: "danger", onclick: () => this.kill() }, "Kill") : null,
        write && this.rule.versions.some((one) => one.state === "on") ? h("button", { type: "button", onclick: () => this.disable() }, "Disable") : null,
        write && rule.state === "off" ? h("button", { type: "button", class: "primary", onclick: () => this.enable(null) }, "Enable") : null,
        write ? h("button", { type: "button", class: "danger", onclick: () => this.remove(null) }, "Remove") : null),
      rule?.labels?.title ? h("p", { class: "rule-title" }, foreign(rule.labels.title)) : null,
      rule?.labels?.description ? h("p", { class: "description" }, foreign(rule.labels.description)) : null,
      rule && otherLabels(rule).length ? h("ul", { class: "labels", "aria-label": "Labels" }, otherLabels(rule).map(([name, value]) =>
        h("li", { class: "label" }, foreign(name, "label-name"), foreign(value)))) : null,
      isOutdated ? h("p", { class: "notice" }, "This rule has changed in the meantime. ", h("button", { type: "button", onclick: () => this.reload() }, "Reload")) : null);
  }

  // *kept*: the text of the editor, which is otherwise replaced.
  async reload(kept = null) {
    this.drawn = null;
    this.closePanels();
    await this.load(kept);
  }

  // ------------------------------------------------------------------ checking and saving

  edited(text) {
    this.text = text;
    this.checked = this.checkNote = null;
    this.panels.source?.checking();
    this.drawHead();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.check(), DEBOUNCE);
  }

  // Puts another text into the editor.
  rewrite(text) {
    this.text = text;
    if (this.panels.source?.editor) this.panels.source.editor.text = text;
    this.edited(text);
  }

  async check() {
    clearTimeout(this.timer);
    this.checks?.abort();
    this.checks = new AbortController();
    const text = this.text;
    const { signal } = this.checks;
    const slow = setTimeout(() => this.checkTakes("Checking … This takes longer than usual.", signal), SLOW);
    try {
      this.checked = await post("/api/check", { text, id: this.id }, signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.status === 503 && !this.closed && text === this.text) {
        this.checkTakes("The console is busy. The check is repeated in a few seconds.", signal);
        this.timer = setTimeout(() => this.check(), BUSY);
        return;
      }
      this.checked = { problems: [{ line: 1, column: 1, message: error.message, detail: error.detail, hint: error.hint }], warnings: [], more: 0, failed: true };
    } finally {
      clearTimeout(slow);
    }
    this.checkNote = null;
    if (this.closed || text !== this.text) return;
    if (this.checked.drawing) {
      if (this.drawing) URL.revokeObjectURL(this.drawing);
      this.drawing = URL.createObjectURL(new Blob([this.checked.drawing], { type: "image/svg+xml" }));
    }
    this.panels.source?.checkedNow();
    this.panels.overview?.update(true);
    this.drawHead();
  }

  // Says beside the editor what a check that has not ended is doing.
  checkTakes(note, signal) {
    if (signal.aborted || this.closed || this.checked !== null) return;
    this.checkNote = note;
    this.panels.source?.drawSave();
  }

  get canSave() {
    const effect = this.checked?.effect?.effect;
    return this.canEdit && Boolean(effect) && effect !== "unchanged";
  }

  async save() {
    if (!this.canSave || this.isSaving) return;
    this.isSaving = true;
    this.panels.source?.drawSave();
    try {
      const based = this.template ?? this.rule;
      const done = await post("/api/save", { text: this.text, tag: this.checked.id === based.id ? based.tag : null, comment: this.comment || null });
      this.comment = "";
      toast(done.done.join("; ") || "nothing has changed");
      this.saved = this.text;
      await this.app.refresh();
      if (this.app.rule(this.id) && done.id === based.id) await this.reload();
      else location.hash = ruleLink(done.rule, "overview");
    } catch (error) {
      toast(error.message, "bad");
      if (error.status === 412) {
        const answer = await dialog("Somebody else has changed this rule", h("p", {}, "Compare your text with the changed rule, and then save it as the next version; or discard it."), [["", "Keep editing"], ["discard", "Discard my text", "danger"], ["compare", "Compare", "primary"]]);
        if (answer === "discard") await this.reload();
        if (answer === "compare") {
          await this.reload(this.text);
          this.go("versions");
        }
      }
    } finally {
      this.isSaving = false;
      this.panels.source?.drawSave();
    }
  }

  async change(path, body) {
    try {
      const { done } = await post(path, { id: this.id, tag: this.rule.tag, ...body });
      toast(done.join("; "));
      return true;
    } catch (error) {
      toast([error.message, error.hint].filter(Boolean).join(" – "), "bad");
      return false;
    } finally {
      await this.app.refresh();
    }
  }

  async enable(version) {
    if (await this.change("/api/enable", { version })) await this.reload();
  }

  // Asks first, because queries change at once.
  async use({ version, shadow }) {
    const used = this.rule.versions.find((one) => one.state === "on");
    const what = shadow ? "runs as a shadow; its matches are kept apart" : used ? `replaces version ${used.version}, whose partial matches are dropped` : "is used by queries";
    const answer = await dialog(`${shadow ? "Run" : "Use"} version ${version}?`, h("p", {}, `Version ${version} of `, foreign(this.id), ` ${what}.`), [["", "Cancel"], ["yes", shadow ? "Run it" : "Use it", "primary"]]);
    if (answer === "yes") await this.enable(version);
  }

  async rollBack(version) {
    const answer = await dialog(`Go back to version ${version}?`, h("p", {}, `Version ${version} of `, foreign(this.id), " replaces the version in use, whose partial matches are dropped."), [["", "Cancel"], ["yes", "Go back", "primary"]]);
    if (answer === "yes" && await this.change("/api/rollback", { version })) await this.reload();
  }

  async promote() {
    const { version } = this.shadow;
    const states = this.app.states(this.id).filter((one) => one.version === version && one.state === "disabled");
    const failed = states.length ? h("p", { class: "problem" }, "The query has disabled the shadow after an error. It stays disabled when it is promoted; a new version does not.") : null;
    const answer = await dialog("Promote the shadow?", h("div", {}, h("p", {}, `Version ${version} of `, foreign(this.id), " replaces the version in force, whose partial matches are dropped. Those of the shadow continue."), failed), [["", "Cancel"], ["yes", "Promote", "primary"]]);
    if (answer === "yes" && await this.change("/api/promote", {})) await this.reload();
  }

  // The shadow of the template replaces it, with all of its rules.
  async promoteTemplate() {
    const { id, tag } = this.template;
    const answer = await dialog("Promote the template?", h("p", {}, "The shadow of the template ", foreign(id), " replaces it, with all rows. Rules that are the same go on, and so do the partial matches of the shadows."), [["", "Cancel"], ["yes", "Promote", "primary"]]);
    if (answer === "yes" && await this.change("/api/promote", { id, tag })) await this.reload();
  }

  // Excludes the rule from the query, whatever its source has.
  async kill() {
    const versions = this.app.states(this.id).filter((one) => one.version !== null);
    const which = h("select", { "aria-label": "Version" }, h("option", { value: "" }, "all versions"), versions.map((one) => h("option", { value: String(one.version) }, `version ${one.version}, ${one.state}`)));
    const reason = h("input", { type: "text", "aria-label": "Reason", maxlength: "1000", required: true, autofocus: true });
    const answer = await dialog("Kill the rule?", h("div", { class: "fields" }, h("p", {}, "Within seconds, the query stops using ", foreign(this.id), ", whatever its source contains. The rule stays killed until it is re-enabled."),
      h("label", {}, "What ", which), h("label", {}, "Reason, for the history ", reason)), [["", "Cancel"], ["yes", "Kill", "danger"]]);
    if (answer === "yes" && await this.change("/api/kill", { version: which.value === "" ? null : Number(which.value), reason: reason.value })) this.drawHead();
  }

  async admit(name) {
    const answer = await dialog("Re-enable the rule in the query?", h("p", {}, "The query uses the next version of ", foreign(name), ", or the same one after it is disabled and enabled."), [["", "Cancel"], ["yes", "Re-enable", "primary"]]);
    if (answer === "yes") await this.change("/api/unkill", { name });
  }

  async disable() {
    const answer = await dialog("Disable the rule?", h("p", {}, foreign(this.id), " stays in the source, and queries stop using it. Its partial matches are dropped."), [["", "Cancel"], ["yes", "Disable", "primary"]]);
    if (answer === "yes" && await this.change("/api/disable", {})) await this.reload();
  }

  async remove(version) {
    const what = version === null ? "with all its versions" : `version ${version}`;
    const answer = await dialog("Remove the rule?", h("p", {}, foreign(this.id), `, ${what}, is removed from the source. This cannot be undone.`), [["", "Cancel"], ["yes", "Remove", "danger"]]);
    if (answer !== "yes" || !await this.change("/api/remove", { version })) return;
    if (this.app.rule(this.id)) await this.reload();
    else location.hash = "#/";
  }
}

function back() {
  return h("a", { class: "back", href: "#/" }, h("span", { "aria-hidden": "true" }, "←"), " All rules");
}

function changedText(rule) {
  const by = rule.changedBy ? `by ${rule.changedBy}` : "";
  return [rule.changedAt ? timeText(rule.changedAt) : "", by].filter(Boolean).join(" ") + (rule.comment ? `: ${rule.comment}` : "") || null;
}

function costText({ states, conditions, bound }) {
  return [`${plural(states, "state")}, ${plural(conditions, "condition")}. `, bound === null ? h("b", { class: "warning" }, "Nothing bounds the partial matches of a key.") : ["Partial matches are bounded by ", foreign(bound), "."]];
}

// *taken*: the ids of other rules.
function example(session, taken) {
  const ids = ["my-rule", ...Array.from(taken, (_, at) => `my-rule-${at + 2}`)];
  const quoted = (name) => (/^\w+$/.test(name) ? name : `\`${name.replaceAll("`", "``")}\``);
  const { time } = session;
  const names = new Set((session.columns ?? []).map(([name]) => name));
  const others = (session.columns ?? []).filter(([name]) => name !== time);
  // The key of the stream, or else a column that looks like one.
  const looks = others.find(([name]) => /(^|_)(user|customer|account|card|client|device|machine|host|session)(_|$)/i.test(name)) ?? others.find(([name]) => /_id$/i.test(name)) ?? others.find(([, type]) => type === "STRING");
  const key = session.streamKey.find((name) => !names.size || names.has(name)) ?? looks?.[0];
  return `id: ${ids.find((id) => !taken.has(id))}
version: 1
labels:
  title: ""
  severity: low
sql: |
${key === undefined ? "" : `  PARTITION BY ${quoted(key)}\n`}${time === null || (names.size && !names.has(time)) ? "" : `  ORDER BY ${quoted(time)}\n`}  MEASURES COUNT(A.*) AS events
  PATTERN (A ({- X*? -} A){2})
  WITHIN INTERVAL '10' MINUTE
  DEFINE
    A AS true
`;
}

// ---------------------------------------------------------------------- overview

class OverviewTab {
  constructor(page) {
    this.page = page;
    this.alerts = page.app.session.hasStatus ? new Alerts(page.app, page.id) : null;
    this.top = h("div", { class: "overview" });
    this.rest = h("div", { class: "overview" });
    this.element = h("div", { class: "overview" }, this.top, this.alerts?.element, this.rest);
    this.update();
  }

  update(isChecked = false) {
    const { page } = this;
    const { app } = page;
    const rule = page.current;
    const states = app.states(page.id);
    const killed = app.killed(page.id);
    const drawn = JSON.stringify([states, rule, killed, app.earlierOf(page.id), app.series.matches[page.id], page.drawing, page.checked?.explanation, app.status?.state]);
    this.alerts?.update();
    if (drawn === this.drawn && !isChecked) return;
    this.drawn = drawn;
    replace(this.top,
      rule.error ? errorBox(rule.error, "The rule is invalid") : null,
      states.some((one) => one.reason) ? h("div", { class: "error-box" }, states.filter((one) => one.reason).map((one) =>
        h("p", {}, h("b", {}, `v${one.version} is ${one.state}`), one.disabled_groups ? ` in ${plural(one.disabled_groups, "key group")}` : "", ": ", foreign(one.reason)))) : null,
      killed.length && app.canWrite ? h("div", { class: "notice" }, killed.map(([name]) => h("button", { type: "button", onclick: () => page.admit(name) }, "Re-enable ", foreign(name)))) : null,
      app.status ? this.counts(states) : null);
    replace(this.rest,
      this.drawing(rule),
      h("dl", { class: "facts" }, [
        ["What", rule.summary], ["Key", rule.error ? null : rule.key ? rule.key.join(", ") || "one for all events" : "that of the stream"],
        ["Measures", rule.select?.join(", ")], ["Suppressed", rule.suppress ? `for ${rule.suppress} after a match of the same key` : null],
        ["From", rule.timestamp && timeText(rule.timestamp)], ["Expires", rule.expires && timeText(rule.expires)],
        ["Tests", rule.tests ? plural(rule.tests, "test") : null], ["Template", rule.template], ["Changed", changedText(rule)], ["Stored in", rule.where],
        ["Shadow", shadowOf(page.rule.versions)?.summary],
      ].filter(([, value]) => value).map(([name, value]) => [h("dt", {}, name), h("dd", {}, foreign(value))])),
      page.template ? templateView(page.template, page.id) : null,
      page.checked?.explanation && !page.isChanged ? h("details", {}, h("summary", {}, "In words"), h("pre", { class: "explanation", tabindex: 0, role: "region", "aria-label": "The rule in words" }, page.checked.explanation)) : null,
      page.checked?.warnings?.length && !page.isChanged ? h("div", { class: "warn-box" }, h("h2", {}, "Warnings"), page.checked.warnings.map((one) => h("p", {}, foreign(one.message), one.hint ? h("span", { class: "hint" }, " Hint: ", foreign(one.hint)) : null))) : null);
  }

  drawing(rule) {
    const { page } = this;
    if (rule.error || rule.kind === "call") return null;
    if (page.checked?.problems.length) return h("p", { class: "notice" }, page.isChanged ? "Your text, which is not saved, has problems. " : "The rule has problems. ", h("a", { href: ruleLink(page.id, "source") }, "Show the source"));
    if (!page.drawing) return page.checked ? null : loading("Drawing …");
    return h("figure", { class: "drawing" }, h("img", { src: page.drawing, alt: page.isChanged ? "Drawing of the pattern, as edited" : "Drawing of the pattern" }));
  }

  counts(states) {
    const { page } = this;
    const { app, id } = page;
    const sum = (name) => states.reduce((total, one) => total + (one[name] ?? 0), 0);
    const last = states.map((one) => one.last_match ?? "").sort().at(-1);
    const values = app.series.matches[id] ?? [];
    const earlier = app.earlierOf(id);
    return h("div", { class: "cards" },
      h("div", { class: "card wide" }, h("p", { class: "card-name" }, "Matches"), h("p", { class: "card-value" }, number(sum("matches"))), earlier ? h("p", { class: "card-text" }, `and ${number(earlier)} of earlier versions`) : null, sparkline(values, app.seconds(), { width: 220, height: 40 })),
      [["Events searched", sum("events")], [states.length && page.current?.kind === "sql" ? "Waiting rows" : "Partial matches", sum("partial_matches")], ["Timed out", sum("timed_out")], ["Errors", sum("errors")]].map(([name, value]) =>
        h("div", { class: name === "Errors" && value ? "card bad" : "card" }, h("p", { class: "card-name" }, name), h("p", { class: "card-value" }, number(value)))),
      h("div", { class: "card" }, h("p", { class: "card-name" }, "Last match"), h("p", { class: "card-text" }, timeText(last))));
  }
}

// The parameters of a template and its rows, with the row of this rule first.
function templateView(template, id) {
  const names = template.parameters.map(([name]) => name);
  const heading = h("h2", {}, template.isShadow ? "Shadow of the template " : "Template ", foreign(template.id));
  const types = h("p", {}, template.parameters.map(([name, type, value], at) => [at ? ", " : "", foreign(name), h("span", { class: "dim" }, ` ${type}${value === null ? "" : ` = ${value}`}`)]));
  if (template.rows === null) return h("section", { class: "template" }, heading, types, h("p", { class: "dim" }, `Its ${plural(template.rules, "row")} ${template.rules === 1 ? "is" : "are"} in a table of the database.`));
  const isOwn = ([row]) => `${template.id}/${row}` === id;
  const rows = [...template.rows.filter(isOwn), ...template.rows.filter((row) => !isOwn(row))];
  const cell = (value) => h("td", {}, value === null ? h("span", { class: "dim" }, "default") : foreign(value));
  return h("section", { class: "template" }, heading, types,
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["Row", ...names].map((name) => h("th", { scope: "col" }, foreign(name))))),
      h("tbody", {}, rows.map(([row, enabled, ...values]) => h("tr", { class: isOwn([row]) ? "own" : "" },
        h("th", { scope: "row" }, isOwn([row]) ? h("b", {}, foreign(row)) : h("a", { href: ruleLink(`${template.id}/${row}`) }, foreign(row)), enabled ? null : h("span", { class: "dim" }, " off")), values.map(cell)))))),
    template.rules > rows.length ? h("p", { class: "dim" }, `The first ${rows.length} of ${plural(template.rules, "row")}.`) : null);
}

// ---------------------------------------------------------------------- source

class SourceTab {
  constructor(page) {
    this.page = page;
    const rule = page.current;
    if (rule && (page.template ? page.template.text : rule.text) === null) {
      this.element = h("div", {}, rule.error ? errorBox(rule.error) : h("p", { class: "empty" }, page.template ? "The template is too large to be edited here." : "This rule is a call of a function that the query has registered. It has no source to edit here."));
      return;
    }
    this.editor = new Editor({
      label: page.template ? "Source of the template, in YAML" : "Source of the rule, in YAML", text: page.text, readOnly: !page.canEdit,
      onChange: (text) => page.edited(text), onSave: () => page.save(), known: () => page.app.completions(),
    });
    this.button = h("button", { type: "button", class: "primary", onclick: () => page.save() });
    this.revert = h("button", { type: "button", onclick: () => {
      this.editor.text = page.saved;
      page.edited(page.saved);
    } }, "Revert");
    this.note = h("span", { class: "note" });
    this.comment = h("input", { type: "text", class: "comment", maxlength: "1000", "aria-label": "What changes, for the list of versions", placeholder: "What changes, and why", oninput: () => { page.comment = this.comment.value; } });
    this.preview = h("figure", { class: "drawing" });
    this.words = h("pre", { class: "explanation", tabindex: 0, role: "region", "aria-label": "The rule in words" });
    this.cost = h("p", { class: "cost" });
    this.columns = h("details", { hidden: true, open: page.isNew });
    const conditions = Object.entries(page.app.status?.conditions ?? {});
    this.conditions = conditions.length ? h("details", {}, h("summary", {}, "Conditions of the query"), h("ul", { class: "columns" }, conditions.map(([name, types]) => h("li", {}, foreign(name), " ", h("span", { class: "dim" }, types))))) : null;
    this.form = page.canEdit && !page.template ? new RuleForm(page) : null;
    this.element = h("div", { class: "source-tab" },
      h("div", { class: "toolbar" }, this.button, this.comment, this.revert, this.note),
      this.form?.element, h("div", { class: "split" }, this.editor.element, h("div", { class: "side" }, this.editor.problems, h("div", { class: "preview" }, this.preview, this.cost, this.words, this.columns, this.conditions ?? ""))));
    this.checkedNow();
    this.showColumns();
  }

  // Right after its start, the console may still read them: they are then asked for again.
  showColumns(isAgain = false) {
    const { page } = this;
    page.app.columns().then((columns) => {
      if (page.closed || page.panels.source !== this) return;
      if (columns || !isAgain) this.form?.draw();
      if (!columns && page.app.session.history.length) setTimeout(() => this.showColumns(true), RETRY);
      if (!columns) return;
      replace(this.columns, h("summary", {}, "Columns of the events"), h("ul", { class: "columns" }, columns.map(([name, type]) => h("li", {}, foreign(name), " ", h("span", { class: "dim" }, type)))));
      this.columns.hidden = false;
    });
  }

  close() {
    this.form?.close();
  }

  checking() {
    if (!this.editor) return;
    this.editor.show(null);
    this.form?.edited();
    this.drawSave();
  }

  checkedNow() {
    if (!this.editor) return;
    const { checked, drawing } = this.page;
    if (checked) {
      this.editor.show(checked);
      this.form?.checked(checked);
      replace(this.preview, checked.drawing ? h("img", { src: drawing, alt: "Drawing of the pattern" }) : checked.problems.length && drawing ? h("img", { src: drawing, class: "stale", alt: "Drawing of the pattern before the last changes" }) : null);
      this.words.textContent = checked.explanation ?? "";
      this.words.hidden = !checked.explanation;
      replace(this.cost, checked.cost ? costText(checked.cost) : null);
      this.cost.hidden = !checked.cost;
    }
    this.drawSave();
  }

  drawSave() {
    if (!this.editor) return;
    const { page } = this;
    const { checked } = page;
    const effect = checked?.effect;
    const isVersioned = Number.isInteger(effect?.version);
    const words = effect?.shadow && effect.effect !== "unchanged" ? { [effect.effect]: isVersioned ? `Save as shadow, version ${effect.version}` : "Save as a shadow" } : { new: "Add the rule", version: isVersioned ? `Save as version ${effect.version}` : "Save the template", labels: isVersioned ? `Save, version ${effect.version}` : "Save", unchanged: "Saved" };
    this.button.textContent = page.isSaving ? "Saving …" : effect ? words[effect.effect] : "Save";
    this.button.disabled = !page.canSave || page.isSaving;
    this.revert.hidden = !page.isChanged;
    this.comment.hidden = !page.canEdit || !page.isChanged;
    const disabled = "The rule stays disabled. Its new version is used when the rule is enabled.";
    const notes = effect?.disabled ? { version: disabled } : effect?.shadow ? { [effect.effect]: "The version in use continues. The matches of the shadow are kept apart from those of the rule." } : { version: effect?.adopts ?? (page.template ? "Queries drop the partial matches of the rules that change." : "Queries drop the partial matches of the version before."), labels: "The version does not change, and partial matches continue." };
    const isTaken = page.isNew && effect?.effect === "version" && !effect.shadow;
    this.note.textContent = !page.app.canWrite ? "Your token may only read." : !page.canEdit ? "The rows of this template are in a table of the database. Change it there, or with `asterism rules apply`." : checked === null ? page.checkNote ?? "Checking …" : checked.problems.length ? plural(checked.problems.length + (checked.more ?? 0), "problem") : `${isTaken ? `There is a rule ${checked.id}, which this one replaces. ` : ""}${notes[effect?.effect] ?? ""}`;
    this.note.className = checked?.problems.length || isTaken ? "note bad" : "note";
  }
}
