/** A small line without axes, beside a number. */
import { svg } from "../dom.js";
import { areaPath, linear, linePath } from "./scale.js";

/** @param {(number | null)[]} values @param {number} [most] value at the top edge */
export function spark(values, most) {
  const top = most ?? Math.max(...values.map((v) => v ?? 0), 1e-9);
  const x = linear(0, Math.max(1, values.length - 1), 1, 119);
  const y = linear(0, top, 31, 2);
  const known = values.map((v) => v ?? 0);
  return svg("svg", { class: "spark", viewBox: "0 0 120 32", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("path", { class: "under", d: areaPath(known.map(() => 0), known, x, y) }),
    svg("path", { class: "stroke", d: linePath(values, x, y) }));
}
