import { plural, svg } from "./dom.js";

// Bars of the matches between two looks at the status.
export function sparkline(values, seconds, { width = 96, height = 22 } = {}) {
  const total = values.reduce((sum, value) => sum + value, 0);
  const minutes = Math.max(1, Math.round(seconds / 60));
  const label = `${plural(total, "match", "matches")} in the last ${plural(minutes, "minute")}`;
  const most = Math.max(1, ...values);
  const slots = 60;
  const last = values.slice(-slots);
  const step = width / slots;
  const chart = svg("svg", {
    class: "sparkline", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label,
  });
  const title = svg("title");
  title.append(label);
  chart.append(title, svg("path", { class: "axis", d: `M0 ${height - 0.5}H${width}` }));
  last.forEach((value, at) => {
    if (value === 0) return;
    const tall = Math.max(2, (value / most) * (height - 3));
    const x = width - (last.length - at) * step;
    chart.append(svg("rect", { x: x.toFixed(2), y: (height - 1 - tall).toFixed(2), width: Math.max(1, step - 0.4).toFixed(2), height: tall.toFixed(2) }));
  });
  return chart;
}
