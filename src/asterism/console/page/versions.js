import { diffView } from "./diff.js";
import { h, replace } from "./dom.js";
import { stateBadge } from "./list.js";

// The stored versions of a rule, and the differences between two of them.
export class VersionsTab {
  constructor(page) {
    this.page = page;
    const versions = page.rule.versions.filter((one) => one.text !== null);
    this.versions = versions;
    const used = versions.findIndex((one) => one.state === "on");
    this.table = h("div", { class: "scroll" }, h("table", { class: "versions" }, h("thead", {}, h("tr", {}, ["Version", "State", "What", ""].map((name) => h("th", { scope: "col" }, name || h("span", { class: "hidden" }, "Changes"))))),
      h("tbody", {}, page.rule.versions.map((one) => this.row(one)))));
    this.element = h("div", { class: "versions-tab" }, this.table);
    const named = [...versions.map((one) => [`Version ${one.version}${one.state === "on" ? ", in use" : ""}`, () => one.text]), ["As edited", () => page.text]];
    const select = (label, at) => h("select", { "aria-label": label, onchange: () => this.compare() }, named.map(([name], number) => h("option", { value: String(number), selected: number === at }, name)));
    this.named = named;
    const before = versions.length > 1 ? Math.min((used < 0 ? 0 : used) + 1, versions.length - 1) : 0;
    this.from = select("Before", before);
    this.to = select("After", versions.length > 1 ? Math.max(used, 0) : named.length - 1);
    this.view = h("div", {});
    this.element.append(h("div", { class: "toolbar" }, h("h2", {}, "Differences"), h("label", {}, "from ", this.from), h("label", {}, "to ", this.to)), this.view);
  }

  shown() {
    this.compare();
  }

  compare() {
    const [before, after] = [this.from, this.to].map((one) => this.named[Number(one.value)][1]());
    replace(this.view, diffView(before, after));
  }

  row(one) {
    const { page } = this;
    const write = page.app.canWrite && one.kind !== "call" && one.version !== null;
    const several = page.rule.versions.length > 1;
    return h("tr", {}, h("th", { scope: "row" }, one.version === null ? "–" : `v${one.version}`), h("td", {}, stateBadge(one.state === "on" ? "in use" : one.state)),
      h("td", { class: "wide-cell" }, h("bdi", {}, one.error ? one.error.message : one.summary)),
      h("td", { class: "actions" }, write && several && one.state !== "on" && !one.error ? h("button", { type: "button", onclick: () => page.enable(one.version) }, one.state === "older" ? "Go back to it" : "Use it") : null,
        write && several ? h("button", { type: "button", class: "danger quiet", onclick: () => page.remove(one.version) }, "Remove", h("span", { class: "hidden" }, ` version ${one.version}`)) : null));
  }
}
