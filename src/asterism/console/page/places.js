// The part of the address behind "#": which rule, and which of its tabs.

export function ruleLink(id, tab = "overview") {
  const name = typeof id.toWellFormed === "function" ? id.toWellFormed() : id;
  return `#/rule/${encodeURIComponent(name)}/${tab}`;
}

export function place() {
  const parts = location.hash.replace(/^#\//, "").split("/");
  try {
    if (parts[0] === "rule" && parts[1]) return { kind: "rule", id: decodeURIComponent(parts[1]), tab: parts[2] || "overview" };
  } catch {
    return { kind: "none" };
  }
  return { kind: parts[0] === "new" ? "new" : "none", tab: parts[1] || "source" };
}
