// What can be completed at a place of the text of a rule. No elements here: texts in, suggestions out.

const SQL_FIELDS = "sql|expression|select|key";
// A field whose value is in the lines below, and one whose value is in the same line.
const BLOCK = new RegExp(`^[\\s-]*"?(?:${SQL_FIELDS})"?\\s*:\\s*(?:[|>][-+0-9]*\\s*)?$`);
const INLINE = new RegExp(`^[\\s-]*"?(?:${SQL_FIELDS})"?\\s*:[ ]+(?![ |>])`);
const IN_JSON = /"(?:sql|expression)"\s*:\s*"((?:[^"\\]|\\.)*)$/;
const IN_BRACES = /[{,]\s*(?:sql|expression)\s*:\s+([^"'{}][^{}]*)$/;
const FIELD = /^[\s-]*"?[\w.-]+"?\s*:/;
const NESTED = {
  labels: [["title", "shown beside the id"], ["description", "shown below the id"], ["owner", ""], ["severity", ""]],
  suppress: [["for", "such as 1 hour"]],
};
const CLAUSE = /\b(PARTITION\s+BY|ORDER\s+BY|MEASURES|AFTER\s+MATCH|PATTERN|WITHIN|SUBSET|DEFINE)\b/gi;
const PLAIN = /^[A-Za-z_]\w*$/;
const WORD = /[\p{L}\p{N}_]*$/u;

function indentOf(line) {
  return /^\s*/.exec(line)[0].length;
}

// The SQL before the cursor and that around it, or null.
function sqlAt(lines, row, before) {
  const here = lines[row];
  const json = IN_JSON.exec(before);
  if (json) return { before: json[1].replaceAll(/\\[nt]/g, "\n"), all: here.replaceAll(/\\[nt]/g, "\n") };
  const braces = IN_BRACES.exec(before);
  if (braces) return { before: braces[1], all: here };
  const inline = INLINE.exec(before);
  if (inline) return { before: before.slice(inline[0].length).replace(/^["']/, ""), all: here.slice(inline[0].length) };
  // Lines that are further to the left lead to the field that the line belongs to. The items of a list may begin below its name.
  const depthOf = (line) => indentOf(line) + (/^\s*- /.test(line) ? 1 : 0);
  let depth = here.trim() ? depthOf(here) : before.length;
  for (let at = row - 1; at >= 0 && depth > 0; at -= 1) {
    const line = lines[at];
    if (!line.trim() || indentOf(line) >= depth) continue;
    if (BLOCK.test(line)) {
      let end = row + 1;
      while (end < lines.length && (!lines[end].trim() || indentOf(lines[end]) > indentOf(line))) end += 1;
      return { before: lines.slice(at + 1, row).concat(before).join("\n"), all: lines.slice(at + 1, end).join("\n") };
    }
    if (FIELD.test(line)) return null;
    depth = depthOf(line);
  }
  return null;
}

// Whether the cursor is inside of quotes or of a comment: "'", "`" or "".
function quoteAt(sql) {
  let quote = "";
  for (let at = 0; at < sql.length; at += 1) {
    const one = sql[at];
    if (quote) {
      if (one === "\\" && quote === "'") at += 1;
      else if (one === quote || (quote === "--" && one === "\n")) quote = "";
    } else if (one === "'" || one === "`") quote = one;
    else if (one === "-" && sql[at + 1] === "-") quote = "--";
  }
  return quote;
}

function variablesOf(sql) {
  const names = new Set();
  const defined = /\bDEFINE\b([\s\S]*)$/i.exec(sql)?.[1] ?? "";
  for (const [, name] of defined.matchAll(/(?:^|,|\n)\s*([A-Za-z_]\w*)\s+AS\b/g)) names.add(name);
  const pattern = /\bPATTERN\s*\(([\s\S]*?)(?=\b(?:WITHIN|SUBSET|DEFINE)\b|$)/i.exec(sql)?.[1] ?? "";
  for (const [name] of pattern.matchAll(/[A-Za-z_]\w*/g)) if (name.toUpperCase() !== "PERMUTE") names.add(name);
  return [...names];
}

// The fields of a structure, whose type is written "STRUCT<name: STRING, most: INT>".
function fieldsOf(type) {
  const inside = /^STRUCT<(.*)>$/s.exec(type)?.[1];
  if (inside === undefined) return null;
  const fields = [];
  let depth = 0, begin = 0;
  for (let at = 0; at <= inside.length; at += 1) {
    const one = inside[at];
    if (one === "<" || one === "(") depth += 1;
    if (one === ">" || one === ")") depth -= 1;
    if ((one === "," && depth === 0) || at === inside.length) {
      const [, name, kind] = /^\s*`?(.*?)`?\s*:\s*(.*)$/s.exec(inside.slice(begin, at)) ?? [];
      if (name) fields.push([name, kind]);
      begin = at + 1;
    }
  }
  return fields;
}

function quoted(name, always = false) {
  return !always && PLAIN.test(name) ? name : `\`${name.replaceAll("`", "``")}\``;
}

function inSql(sql, { columns, functions, words }) {
  const quote = quoteAt(sql.before);
  if (quote === "'" || quote === "--") return null;
  const word = quote === "`" ? /[^`]*$/.exec(sql.before)[0] : WORD.exec(sql.before)[0];
  const rest = sql.before.slice(0, sql.before.length - word.length - (quote === "`" ? 1 : 0));
  const length = word.length + (quote === "`" ? 1 : 0);
  const asColumn = ([name, type]) => ({ name, text: quoted(name, quote === "`"), note: type, kind: "column" });
  const owner = /([\p{L}\p{N}_]+)\.$/u.exec(rest)?.[1];
  if (/^\d+$/.test(owner ?? "")) return null; // 1.5
  if (owner !== undefined) {
    const fields = fieldsOf(columns.find(([name]) => name === owner)?.[1] ?? "");
    return { word, length, all: (fields ?? columns).map(asColumn) };
  }
  if (quote === "`") return { word, length, all: columns.map(asColumn) };
  if (/^\d/.test(word) || /[:$]$/.test(rest)) return null;
  const last = [...rest.matchAll(CLAUSE)].at(-1)?.[1].toUpperCase().split(/\s/)[0];
  const variables = ["PARTITION", "ORDER"].includes(last) ? [] : variablesOf(sql.all).map((name) => ({ name, text: name, note: "variable", kind: "variable" }));
  const clauses = words.map((name) => ({ name, text: `${name} `, note: "", kind: "word" }));
  if (last === "PATTERN" || last === "SUBSET" || last === "AFTER") return { word, length, all: [...variables, ...clauses] };
  const isUpper = word !== "" && word === word.toUpperCase() && word !== word.toLowerCase();
  const calls = functions.map(([name, usage]) => ({ name, text: `${isUpper ? name.toUpperCase() : name}(`, note: usage, kind: "function" }));
  return { word, length, all: [...columns.map(asColumn), ...variables, ...calls, ...clauses] };
}

function inYaml(lines, row, before, fields) {
  const word = /^(\s*)([A-Za-z]*)$/.exec(before);
  if (!word || /:/.test(lines[row].slice(before.length))) return null;
  const as = ([name, note]) => ({ name, text: `${name}: `, note, kind: "field" });
  if (word[1] === "") {
    const known = new Set(lines.map((line) => /^"?(\w+)"?\s*:/.exec(line)?.[1]));
    return { word: word[2], length: word[2].length, all: fields.filter(([name]) => !known.has(name)).map(as) };
  }
  for (let at = row - 1; at >= 0; at -= 1) {
    if (lines[at].trim() && indentOf(lines[at]) < word[1].length) {
      const parent = /^\s*"?(\w+)"?\s*:\s*$/.exec(lines[at])?.[1];
      return Object.hasOwn(NESTED, parent ?? "") ? { word: word[2], length: word[2].length, all: NESTED[parent].map(as) } : null;
    }
  }
  return null;
}

const RANK = { column: 0, variable: 1, field: 1, function: 2, word: 3 };

// The suggestions at a place: {length, all}, where the last *length* characters are replaced; null: there are none.
export function suggestionsAt(text, at, known) {
  const lines = text.split("\n");
  const row = text.slice(0, at).split("\n").length - 1;
  const before = text.slice(text.lastIndexOf("\n", at - 1) + 1, at);
  const sql = sqlAt(lines, row, before);
  const context = sql ? inSql(sql, known) : inYaml(lines, row, before, known.fields);
  if (context === null) return null;
  const wanted = context.word.toLowerCase();
  const place = ({ name, kind }) => {
    const lower = name.toLowerCase();
    // Words in capital letters are rather those of clauses.
    if (lower.startsWith(wanted)) return kind === "word" && /^[A-Z]/.test(context.word) ? 1.5 : RANK[kind];
    // A part of a longer name is enough for columns.
    return kind === "column" && wanted.length > 1 && lower.includes(wanted) ? 10 : null;
  };
  const all = context.all.map((one) => [place(one), one]).filter(([rank]) => rank !== null).sort(([one], [other]) => one - other).map(([, one]) => one);
  // Nothing is left to write.
  if (!all.length || (all.length === 1 && all[0].text.trim() === context.word)) return null;
  return { word: context.word, length: context.length, all };
}
