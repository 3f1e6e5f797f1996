import { get, getIfChanged, RequestError, setToken } from "./api.js";
import { Alerts } from "./daily.js";
import { byId, dialog, empty, errorBox, foreign, h, loading, replace, toast } from "./dom.js";
import { RuleList } from "./list.js";
import { place } from "./places.js";
import { RulePage } from "./rule.js";

const POLL = 5000;
const SHORTCUTS = [
  ["/", "search the rules"],
  ["j, k", "next and previous rule"],
  ["n", "new rule"],
  ["1 – 5", "overview, source, try, backtest, versions"],
  ["Ctrl + S", "save, in the editor"],
  ["Ctrl + Space", "complete columns, functions and fields, in the editor"],
  ["Ctrl + Enter", "run, where events are entered"],
  ["g", "back to the list"],
  ["t", "theme"],
  ["?", "this list"],
  ["Esc", "close a dialog"],
];

const app = {
  session: null,
  rules: [],
  etag: null,
  loadedAt: null,
  status: null,
  series: { times: [], matches: {} },
  earlier: {},
  statusError: null,
  error: null,
  page: null,

  get canWrite() {
    return this.session?.rights.includes("write") ?? false;
  },

  rule(id) {
    return this.rules.find((one) => one.id === id);
  },

  // The states in a query of the versions of a rule.
  states(id) {
    return (this.status?.rules ?? []).filter((one) => one.id === id);
  },

  // What is killed in the query of a rule: its name and all its versions, with the reasons.
  killed(id) {
    return Object.entries(this.status?.killed ?? {}).filter(([name]) => name.startsWith(id) && /^(@\d*)?$/.test(name.slice(id.length)));
  },

  // The matches of a rule, or of all rules.
  matchesOf(id) {
    return (this.status?.rules ?? []).reduce((sum, one) => sum + (id === null || one.id === id ? one.matches ?? 0 : 0), 0);
  },

  // The matches of its former versions, which the query does not use any more.
  earlierOf(id) {
    return Object.hasOwn(this.earlier, id) ? this.earlier[id] : 0;
  },

  // The columns of the events. After its start, the console may not know them yet.
  async columns() {
    const { session } = this;
    if (session.columns === null && session.history.length) {
      try {
        this.asking ??= get("/api/session"); // one request for all who wait
        session.columns = (await this.asking).columns;
      } catch {
        // They are only a help.
      } finally {
        this.asking = null;
      }
    }
    return session.columns;
  },

  // What the editor completes.
  async completions() {
    const columns = (await this.columns()) ?? this.sampleColumns ?? [];
    this.vocabulary ??= get("/api/completions").catch(() => { // it is only a help
      this.vocabulary = null;
    });
    return { columns, functions: [], words: [], fields: [], ...(await this.vocabulary) };
  },

  seconds() {
    const { times } = this.series;
    return times.length > 1 ? (Date.parse(times.at(-1)) - Date.parse(times[0])) / 1000 : 0;
  },

  // Reads the rules and the status again, at once or because it is time.
  async refresh() {
    try {
      const { answer, etag } = await getIfChanged("/api/rules", this.etag);
      if (answer) this.rules = answer.rules;
      this.etag = etag;
      this.error = null;
    } catch (error) {
      if (error.status === 401) return signIn("The token is no longer accepted.");
      this.error = error;
    }
    if (this.session.hasStatus) {
      try {
        const found = await get("/api/status");
        this.status = found.status ?? null;
        this.series = found.series;
        this.earlier = found.earlier;
        this.statusError = found.error;
      } catch (error) {
        this.statusError = error;
      }
    }
    this.loadedAt = Date.now();
    this.show();
  },

  show() {
    replace(byId("notice"), this.error ? errorBox(this.error, "The rules cannot be read") : null);
    showQuery();
    list.draw();
    this.page?.update?.();
  },
};

const list = new RuleList(app, byId("list"));

function showQuery() {
  const place = byId("query");
  if (!app.session?.hasStatus) return replace(place);
  const status = app.status;
  const state = app.statusError && !status ? "unknown" : status?.state ?? "unknown";
  const words = { valid: "Query running", interrupted: "Rules interrupted", stale: "Query down", off: "Query ended", initializing: "Query starting", unknown: "Query unknown" };
  const kind = { valid: "good", interrupted: "warn", stale: "bad", off: "dim", initializing: "warn", unknown: "dim" }[state] ?? "dim";
  const why = status?.error ?? app.statusError?.message ?? "";
  const pill = h("span", { class: `pill ${kind}`, title: why }, words[state] ?? state);
  return place.textContent === pill.textContent && place.firstChild?.title === why ? place : replace(place, pill);
}

// ---------------------------------------------------------------------- which page

function route() {
  const { kind, id, tab } = place();
  byId("panes").dataset.page = kind;
  // Every page has one heading; that of a rule is its id.
  replace(byId("heading"), kind === "none" ? h("h1", { class: "hidden" }, "Rules") : null);
  const detail = byId("detail");
  const wanted = kind === "rule" ? `rule ${id}` : kind;
  if (app.page && app.page.name === wanted) {
    app.page.choose(tab);
  } else {
    app.page?.close?.();
    app.page = null;
    if (kind === "none") {
      document.title = "Asterism rules";
      replace(detail, welcome());
      app.page = app.session.hasStatus && app.rules.length ? alertsPage(detail) : null;
    } else {
      app.page = new RulePage(app, detail, wanted, kind === "new" ? null : id, tab);
    }
    detail.scrollTop = 0;
  }
  list.draw();
}

// The alerts of all rules, below the words that say what to do.
function alertsPage(detail) {
  const alerts = new Alerts(app);
  detail.append(alerts.element);
  return { name: "none", id: null, tab: null, update: () => alerts.update(), choose: () => undefined, go: () => undefined, focusPanel: () => undefined };
}

function welcome() {
  if (app.rules.length) return empty("Choose a rule", "Its drawing, source, matches and versions are shown here.");
  return empty("No rules yet", "A rule finds a pattern in the events of a stream.", app.canWrite ? h("a", { class: "button primary", href: "#/new" }, "Write the first rule") : null);
}

// ---------------------------------------------------------------------- tokens

async function signIn(why = "") {
  const input = h("input", { type: "password", name: "token", autocomplete: "off", autofocus: true, "aria-label": "Token", required: true });
  const answer = await dialog("Sign in", h("div", {}, h("p", {}, "Enter the token that you were given. It is kept for this tab only."), why ? h("p", { class: "problem" }, why) : null, input), [["ok", "Sign in", "primary"]]);
  if (answer !== "ok" || !input.value.trim()) return signIn(why);
  setToken(input.value.trim());
  return start();
}

async function start() {
  clearInterval(app.timer);
  try {
    app.session = await get("/api/session");
  } catch (error) {
    if (error instanceof RequestError && error.status === 401) {
      replace(byId("detail"), empty("Sign in", "This console needs a token."));
      setToken(null);
      return signIn(app.session === null && !start.tried ? "" : "The token is missing or wrong.").then(() => undefined, () => undefined);
    }
    replace(byId("detail"), errorBox(error));
    return setTimeout(start, POLL);
  } finally {
    start.tried = true;
  }
  const { source, name, isOpen } = app.session;
  replace(byId("source"), foreign(source));
  byId("source").title = source;
  replace(byId("who"), isOpen ? h("span", { class: "dim" }, "no token") : foreign(name), app.canWrite ? null : h("span", { class: "pill dim" }, "read only"));
  byId("sign-out").hidden = isOpen;
  replace(byId("detail"), loading());
  await app.refresh();
  route();
  app.timer = setInterval(() => document.hidden || app.refresh(), POLL);
}

// ---------------------------------------------------------------------- theme and keys

const THEMES = ["system", "light", "dark"];

function theme(next) {
  const root = document.documentElement;
  if (next) {
    const at = THEMES.indexOf(root.dataset.theme ?? "system");
    const chosen = THEMES[(at + 1) % THEMES.length];
    if (chosen === "system") delete root.dataset.theme;
    else root.dataset.theme = chosen;
    try {
      localStorage.setItem("asterism-theme", chosen);
    } catch {
      // It then holds for this page.
    }
  }
  const name = root.dataset.theme ?? "system";
  const button = byId("theme");
  button.title = `Theme: ${name} (t)`;
  replace(button, h("span", { "aria-hidden": "true" }, { system: "◐", light: "☀", dark: "☾" }[name]), h("span", { class: "hidden" }, `Theme: ${name}`));
}

function showShortcuts() {
  if (document.querySelector("dialog[open]")) return;
  dialog("Keyboard shortcuts", h("dl", { class: "keys" }, SHORTCUTS.map(([keys, what]) => [h("dt", {}, keys.split(", ").map((key) => h("kbd", {}, key))), h("dd", {}, what)])), [["", "Close"]]);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const tab = ["overview", "source", "try", "backtest", "versions"][Number(event.key) - 1];
  // After "j" and "2" in quick succession, the event of the first change of address has not arrived yet.
  if (app.loadedAt !== null && (tab || event.key === "j" || event.key === "k")) route();
  if (event.key === "n" && app.session && !app.canWrite) toast("Your token may only read, so it cannot add a rule.", "bad");
  if (event.key === "?") showShortcuts();
  else if (event.key === "t") theme(true);
  else if (event.key === "/") list.search();
  else if (event.key === "j") list.move(1);
  else if (event.key === "k") list.move(-1);
  else if (event.key === "n" && app.canWrite) location.hash = "#/new";
  else if (event.key === "g") location.hash = "#/";
  else if (tab && app.page) {
    app.page.go(tab);
    app.page.focusPanel();
  }
  else return;
  event.preventDefault();
});

byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("detail").focus();
});
byId("theme").addEventListener("click", () => theme(true));
byId("sign-out").addEventListener("click", () => {
  setToken(null);
  location.reload();
});
byId("help").addEventListener("click", showShortcuts);
window.addEventListener("hashchange", route);
window.addEventListener("beforeunload", (event) => {
  if (app.page?.isChanged) event.preventDefault();
});
theme(false);
start();
