/**
 * What is looked at: all of it is in the address, so that a link shows the same and the back button works.
 * @typedef {object} State
 * @property {string} range `15m`, `1h`, `6h`, `24h`, or `custom` with `from` and `to`
 * @property {number | null} from Unix seconds
 * @property {number | null} to Unix seconds
 * @property {string} by axis of the hit ratio, "" = all together
 * @property {Record<string, string[]>} filters by axis
 * @property {[number, number] | null} picked the stretch whose requests are listed
 * @property {string} show `all`, `miss` or `hit`
 * @property {string} trace the open one, or ""
 * @property {string} span
 * @property {string} hot the chosen key of the graph, or ""
 *
 * @typedef {{from: number, to: number, points: number, step: number, live: boolean}} Window
 */

export const AXES = ["modality", "route", "tenant", "region", "strategy", "service", "instance", "reason", "outcome", "key"];
export const PICKABLE = ["modality", "route", "tenant", "region", "strategy", "instance", "service"];
export const AXIS_WORDS = { region: "client region" };

/** @param {string} axis */
export const axisWord = (axis) => AXIS_WORDS[axis] ?? axis;

export const RANGES = {
  "15m": { seconds: 900, step: 10, words: "15 minutes" },
  "1h": { seconds: 3600, step: 30, words: "hour" },
  "6h": { seconds: 21_600, step: 180, words: "6 hours" },
  "24h": { seconds: 86_400, step: 720, words: "24 hours" },
};
const DEFAULT_RANGE = "1h";
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400, 604_800];
const SHORTEST = 20;

/** @param {string | null} text */
function number(text) {
  const value = text === null || text === "" ? NaN : Number(text);
  return Number.isFinite(value) && value >= 0 && value < 1e11 ? value : null;
}

/** @param {string | null} text */
const hex = (text) => (text && /^[0-9a-fA-F]{1,64}$/.test(text) ? text.toLowerCase() : "");

/** What nobody can have written is left out, and never believed. @param {string} search @returns {State} */
export function parse(search) {
  const given = new URLSearchParams(search);
  const from = number(given.get("from"));
  const to = number(given.get("to"));
  const custom = from !== null && to !== null && to > from;
  const range = given.get("range") ?? "";
  const first = number(given.get("at"));
  const last = number(given.get("until"));
  /** @type {Record<string, string[]>} */
  const filters = {};
  for (const axis of AXES) {
    const values = [...new Set(given.getAll(axis))].map((v) => v.slice(0, 500)).slice(0, 20);
    if (values.length) filters[axis] = values;
  }
  const by = given.get("by") ?? "modality";
  const trace = hex(given.get("trace"));
  return {
    range: custom ? "custom" : range in RANGES ? range : DEFAULT_RANGE,
    from: custom ? from : null,
    to: custom ? to : null,
    by: by === "all" ? "" : PICKABLE.includes(by) ? by : "modality",
    filters,
    picked: first !== null && last !== null && last > first ? [first, last] : null,
    show: ["miss", "hit"].includes(given.get("show") ?? "") ? String(given.get("show")) : "all",
    trace,
    span: trace ? hex(given.get("span")) : "",
    hot: hex(given.get("hot")),
  };
}

/** @param {State} state */
export function address(state) {
  const out = new URLSearchParams();
  if (state.range === "custom") {
    out.set("from", String(state.from));
    out.set("to", String(state.to));
  } else if (state.range !== DEFAULT_RANGE) out.set("range", state.range);
  if (state.by !== "modality") out.set("by", state.by || "all");
  for (const axis of AXES) for (const value of state.filters[axis] ?? []) out.append(axis, value);
  if (state.picked) {
    out.set("at", String(state.picked[0]));
    out.set("until", String(state.picked[1]));
  }
  if (state.show !== "all") out.set("show", state.show);
  if (state.trace) out.set("trace", state.trace);
  if (state.trace && state.span) out.set("span", state.span);
  if (state.hot) out.set("hot", state.hot);
  return `?${out}`;
}

/** The stretch that is drawn, in whole steps, so that buckets stay where they are while time goes on.
 * @param {State} state @param {number} now Unix seconds @returns {Window} */
export function windowOf(state, now) {
  const known = RANGES[state.range];
  if (known) {
    const to = Math.ceil(now / known.step) * known.step;
    return { from: to - known.seconds, to, step: known.step, points: known.seconds / known.step, live: true };
  }
  const asked = Math.max(Number(state.to) - Number(state.from), SHORTEST);
  const step = STEPS.find((s) => asked / s <= 120) ?? Math.ceil(asked / 120);
  const from = Math.floor(Number(state.from) / step) * step;
  const to = Math.max(Math.ceil(Number(state.to) / step) * step, from + step);
  return { from, to, step, points: Math.round((to - from) / step), live: to > now };
}

/** @type {State} */
let state = parse(location.search);
/** @type {((state: State, before: State) => void)[]} */
const listeners = [];

export const current = () => state;

/** @param {(state: State, before: State) => void} listener */
export const subscribe = (listener) => listeners.push(listener);

/** @param {State} next */
function become(next) {
  const before = state;
  state = next;
  for (const listener of listeners) listener(state, before);
}

/**
 * @param {Partial<State>} patch
 * @param {{replace?: boolean, zoom?: boolean}} [how] zoom: Esc leads back from it
 */
export function change(patch, how = {}) {
  const next = { ...state, ...patch };
  if (address(next) === address(state)) return;
  const inside = history.state?.inside ?? null;
  if (how.replace) history.replaceState(history.state, "", address(next));
  else history.pushState({ inside: how.zoom ? { range: state.range, from: state.from, to: state.to, inside } : inside }, "", address(next));
  become(next);
}

/** Undo the last zoom. @returns {boolean} whether there was one */
export function zoomOut() {
  const outer = history.state?.inside;
  if (!outer && state.range !== "custom") return false;
  const next = { ...state, picked: null, range: outer?.range ?? DEFAULT_RANGE, from: outer?.from ?? null, to: outer?.to ?? null };
  history.pushState({ inside: outer?.inside ?? null }, "", address(next));
  become(next);
  return true;
}

/** @param {string} axis @param {string} value */
export function addFilter(axis, value) {
  const values = state.filters[axis] ?? [];
  if (!values.includes(value)) change({ filters: { ...state.filters, [axis]: [...values, value] } });
}

/** @param {string} axis @param {string} value */
export function dropFilter(axis, value) {
  const { [axis]: values = [], ...others } = state.filters;
  const rest = values.filter((v) => v !== value);
  change({ filters: rest.length ? { ...others, [axis]: rest } : others });
}

/** The filters of what is a share of all lookups: of misses alone, no hit ratio can be said. */
export function broad() {
  const { reason: _reason, outcome: _outcome, ...others } = state.filters;
  return others;
}

/** The query of a data endpoint. @param {{from: number, to: number}} range @param {Record<string, string | number>} more @param {Record<string, string[]>} [filters] */
export function query(range, more = {}, filters = state.filters) {
  const out = new URLSearchParams({ from: String(range.from), to: String(range.to) });
  for (const axis of AXES) for (const value of filters[axis] ?? []) out.append(axis, value);
  for (const [name, value] of Object.entries(more)) out.set(name, String(value));
  return out;
}

window.addEventListener("popstate", () => become(parse(location.search)));
