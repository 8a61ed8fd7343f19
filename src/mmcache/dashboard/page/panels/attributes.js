/** What one span says of itself; what is an axis filters. */
import { el, fill, icon } from "../dom.js";
import { clockSeconds, duration, named } from "../format.js";
import { addFilter, axisWord, current } from "../state.js";

const AXIS_OF = {
  "cache.modality": "modality", "cache.route": "route", "cache.tenant": "tenant", "cache.client.region": "region",
  "cache.strategy": "strategy", "cache.key.hash": "key", "cache.miss.reason": "reason", "cache.outcome": "outcome",
};
const FIRST = ["cache.outcome", "cache.miss.reason", "cache.miss.detail", "cache.key.hash"];

/** @param {import("./waterfall.js").Span} span */
export function attributes(span) {
  const rank = (/** @type {string} */ name) => (FIRST.includes(name) ? FIRST.indexOf(name) : name.startsWith("cache.") ? 10 : 20);
  const given = Object.entries(span.attributes).sort(([a], [b]) => rank(a) - rank(b) || a.localeCompare(b));
  const list = el("dl", { class: "attributes" });
  const line = (/** @type {string} */ name, /** @type {string} */ value, axis = "") => {
    list.append(el("div", {}, el("dt", {}, name), el("dd", {}, el("span", { class: "mono" }, value), axis ? filterButton(axis, value) : null)));
  };
  line("service", named(span.service), span.service ? "service" : "");
  line("instance", named(span.instance), span.instance ? "instance" : "");
  line("began, took", `${clockSeconds(span.start)}, ${duration(span.duration_ms / 1000)}`);
  if (span.status === "error") line("status", "error");
  for (const [name, value] of given) line(name, typeof value === "object" ? JSON.stringify(value) : String(value), AXIS_OF[name] ?? "");
  return list;
}

/** @param {string} axis @param {string} value */
function filterButton(axis, value) {
  const chosen = (current().filters[axis] ?? []).includes(value);
  const button = el("button", { type: "button", class: "ghost tiny", disabled: chosen, "aria-label": `Filter by ${axisWord(axis)} ${value}`, title: `Filter by this ${axisWord(axis)}` });
  fill(button, icon("filter"));
  button.addEventListener("click", () => {
    addFilter(axis, value);
    button.setAttribute("disabled", "");
  });
  return button;
}
