import { h, plural } from "./dom.js";

const MAX_LINES = 3000;

// The lines of two texts: [" ", "-" or "+", text].
export function diffLines(before, after) {
  const a = before.split("\n"), b = after.split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const x = a.slice(start, a.length - end), y = b.slice(start, b.length - end);
  const middle = [];
  if (x.length > MAX_LINES || y.length > MAX_LINES) {
    middle.push(...x.map((line) => ["-", line]), ...y.map((line) => ["+", line]));
  } else {
    // The longest common subsequence.
    const longest = Array.from({ length: x.length + 1 }, () => new Uint16Array(y.length + 1));
    for (let i = x.length - 1; i >= 0; i -= 1) {
      for (let j = y.length - 1; j >= 0; j -= 1) {
        longest[i][j] = x[i] === y[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
      }
    }
    let i = 0, j = 0;
    while (i < x.length || j < y.length) {
      if (i < x.length && j < y.length && x[i] === y[j]) middle.push([" ", x[i]]), i += 1, j += 1;
      else if (j >= y.length || (i < x.length && longest[i + 1][j] >= longest[i][j + 1])) middle.push(["-", x[i]]), i += 1;
      else middle.push(["+", y[j]]), j += 1;
    }
  }
  return [...a.slice(0, start).map((line) => [" ", line]), ...middle, ...a.slice(a.length - end).map((line) => [" ", line])];
}

const KINDS = { " ": "same", "-": "gone", "+": "came" };
const WORDS = { "-": "removed: ", "+": "added: " };
const CONTEXT = 3;

export function diffView(before, after) {
  const lines = diffLines(before, after);
  if (lines.every(([kind]) => kind === " ")) return h("p", { class: "fine" }, "No differences.");
  const near = (at) => lines.slice(Math.max(0, at - CONTEXT), at + CONTEXT + 1).some(([kind]) => kind !== " ");
  const rows = [];
  let hidden = [];
  const flush = () => {
    // A single line takes no more room than the words that would replace it.
    if (hidden.length === 1) rows.push(line(...hidden[0]));
    else if (hidden.length) rows.push(h("div", { class: "cut" }, `${plural(hidden.length, "line")} without changes`));
    hidden = [];
  };
  const line = (kind, text) => h("div", { class: KINDS[kind] }, h("span", { class: "sign", "aria-hidden": "true" }, kind),
    WORDS[kind] ? h("span", { class: "hidden" }, WORDS[kind]) : null, h("span", {}, text || " "));
  lines.forEach(([kind, text], at) => {
    if (!near(at)) {
      hidden.push([kind, text]);
      return;
    }
    flush();
    rows.push(line(kind, text));
  });
  flush();
  return h("div", { class: "diff", role: "region", tabindex: 0, "aria-label": "Differences" }, rows);
}
