// The parts of the text of a rule by their kinds: YAML, SQL in it, and Sigma and EQL in the blocks `sigma:` and `eql:`.

const COMMENT = "(?<comment>(?:^|\\s)#.*$)";
const TEXT = "(?<text>\"(?:[^\"\\\\]|\\\\.)*\"|'(?:[^']|'')*')";
const NUMBER = "(?<number>(?<![\\w.])-?\\d+(?:\\.\\d+)?(?:ms|[smhdwMy])?(?![\\w.]))";
const SQL = "PARTITION|ORDER|BY|MEASURES|PATTERN|WITHIN|DEFINE|AS|AFTER|MATCH|SKIP|PAST|LAST|NEXT|ROW|ROWS|ONE|ALL|PER|TO|FIRST|INTERVAL|AND|OR|NOT|SUBSET|COUNT|SUM|AVG|MIN|MAX|PREV|true|false|null";
const YAML = new RegExp(`${COMMENT}|(?<key>^[\\s-]*(?:"(?:[^"\\\\]|\\\\.)*"|[\\w.-]+)(?=\\s*:(?:\\s|$)))|${TEXT}|${NUMBER}|(?<word>\\b(?:${SQL})\\b)`, "gmu");
const SIGMA = new RegExp(`${COMMENT}|(?<mark>^[ ]*---$|(?<=^[\\s-]*[^\\s:|#'"]+)\\|[\\w|]+(?=\\s*:))|(?<key>^[ -]*(?:"(?:[^"\\\\]|\\\\.)*"|[^\\s:|#'"{\\[]+)(?=(?:\\|[\\w|]+)?\\s*:(?:\\s|$)))|${TEXT}|${NUMBER}|(?<word>(?<=^\\s*condition:.*)\\b(?:and|or|not|all|any|of|them)\\b|\\b(?:true|false|null)\\b)`, "gmu");
const EQL = /(?<comment>\/\/.*$|\/\*[\s\S]*?\*\/)|(?<text>"""[^\r\n]*?""""?"?|"(?:\\.|[^"\\\r\n])*")|(?<number>(?<![\w.])(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:ms|[smhd])?(?![\w.]))|(?<mark>!\[|[[\]|])|(?<word>\b(?:sequence|sample|by|with|maxspan|runs|until|where|any|and|or|not|in|like|regex|true|false|null|head|tail|filter|unique|count|sort)\b(?![.(]|~\())|(?<key>\b[a-zA-Z]+(?=~?\())/gmiu;
const BLOCK = /^(?<before>(?<indent> *(?:- )?)(?<name>sigma|eql):[ \t]*)(?<value>\S.*)?$/u;

// Calls add(text, kind) for each part of a text; the kind is null if it has no colour.
export function parts(text, add) {
  const lines = text.split("\n");
  let from = 0; // where the YAML begins that has no colours yet
  let start = 0; // that of the line
  for (let at = 0; at < lines.length; at += 1) {
    const found = BLOCK.exec(lines[at])?.groups;
    let [begin, end] = [start + (found?.before.length ?? 0), start + lines[at].length];
    start = end + 1;
    if (!found?.value) continue;
    if (/^[|>]/.test(found.value)) {
      begin = start;
      while (at + 1 < lines.length && (lines[at + 1].trim() === "" || lines[at + 1].search(/\S/) > found.indent.length)) {
        at += 1;
        end = start + lines[at].length;
        start = end + 1;
      }
    }
    if (begin >= end) continue;
    tokens(text.slice(from, begin), YAML, add);
    tokens(text.slice(begin, end), found.name === "eql" ? EQL : SIGMA, add);
    from = end;
  }
  tokens(text.slice(from), YAML, add);
}

function tokens(text, expression, add) {
  let at = 0;
  for (const found of text.matchAll(expression)) {
    if (found.index > at) add(text.slice(at, found.index), null);
    add(found[0], Object.keys(found.groups).find((name) => found.groups[name] !== undefined));
    at = found.index + found[0].length;
  }
  if (at < text.length) add(text.slice(at), null);
}
