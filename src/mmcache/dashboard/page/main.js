/** Puts the page together: state in, panels out, ticks in between. */
import { get } from "./api.js";
import { reserve } from "./charts/colours.js";
import { Drawer } from "./drawer.js";
import { announce, el } from "./dom.js";
import { lookAt } from "./format.js";
import { Empty, receiver } from "./empty.js";
import { Filters } from "./filters.js";
import { Header, titleOf } from "./header.js";
import { Help } from "./help.js";
import { Live } from "./live.js";
import { CausesPanel } from "./panels/causes.js";
import { GraphPanel } from "./panels/graph.js";
import { KeysPanel } from "./panels/keys.js";
import { RatioPanel } from "./panels/ratio.js";
import { ReasonsPanel } from "./panels/reasons.js";
import { RequestsPanel } from "./panels/requests.js";
import { SavedPanel } from "./panels/saved.js";
import { TiersPanel } from "./panels/tiers.js";
import { change, current, subscribe, windowOf, zoomOut } from "./state.js";

/** Seconds between two refreshes, by the length of a bucket: a tick a second moves nothing in a chart of a day. */
const pause = (/** @type {number} */ step) => Math.min(30, Math.max(2, step / 20));
const IDLE = 20;
const GRAPH_PAUSE = 4;

const now = () => Date.now() / 1000;
let range = windowOf(current(), now());

const hands = {
  pick: (/** @type {number} */ from, /** @type {number} */ to) => {
    change({ picked: [from, to], show: "miss" });
    toRequests();
  },
  zoom: (/** @type {number} */ from, /** @type {number} */ to) => change({ range: "custom", from, to, picked: null }, { zoom: true }),
};
const saved = new SavedPanel();
const ratio = new RatioPanel(hands);
const causes = new CausesPanel();
const reasons = new ReasonsPanel(hands);
const tiers = new TiersPanel();
const keys = new KeysPanel();
const requests = new RequestsPanel();
const graph = new GraphPanel(toRequests);
const panels = [ratio, saved, causes, reasons, requests, tiers, keys, graph];

const help = new Help();
const filters = new Filters();
const empty = new Empty();
const drawer = new Drawer(/** @type {HTMLDialogElement} */ (document.getElementById("drawer")));
const header = new Header(/** @type {HTMLElement} */ (document.getElementById("top")), {
  find: filters.find,
  help: () => help.open(),
  window: () => range,
  redraw: () => {
    for (const panel of panels) if (panel.loaded) panel.draw(panel.data, panel.range);
    showState();
  },
});

ratio.told = (all) => saved.showRatio(all);
causes.told = (marks) => [ratio, reasons].forEach((panel) => panel.chart.annotate({ marks }));
causes.picked = toRequests;
for (const panel of panels) panel.owner = (/** @type {import("./panel.js").Panel} */ one) => one.refresh(windowOf(current(), now()), true);

document.getElementById("top")?.append(filters.root);
const grid = el("div", { class: "grid" }, ...[saved, ratio, causes, reasons, tiers, requests, keys, graph].map((p) => p.root));
document.getElementById("main")?.append(empty.root, grid);
document.body.append(help.root);

function toRequests() {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  requests.root.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
  requests.box.focus({ preventScroll: true });
  announce("The requests are listed below the charts");
}

function showState() {
  const state = current();
  document.title = titleOf();
  header.showState(state, range);
  filters.showState();
  requests.showState();
  graph.showState();
  for (const panel of [ratio, reasons]) panel.chart.annotate({ picked: state.picked });
  drawer.show(state);
}

/** @param {boolean} tick */
function refresh(tick) {
  range = windowOf(current(), now());
  lookAt(range.to - 1);
  showState();
  for (const panel of panels) panel.refresh(range, tick);
  askMeta();
}

let metaOnItsWay = false;
let metaWanted = false;

/** What there is at all: the values to filter by, and the time that is kept. */
async function askMeta() {
  metaWanted = metaOnItsWay;
  if (metaOnItsWay) return;
  metaOnItsWay = true;
  try {
    const meta = await get("meta");
    filters.offer({ ...meta.axes, outcome: ["hit", "near", "stale", "miss"] });
    for (const [axis, values] of Object.entries(meta.axes)) reserve(axis, /** @type {string[]} */ (values));
    graph.receiver = receiver(meta.otlp);
    const some = meta.spans || meta.views; // a process may send its hot keys alone
    const outside = meta.spans > 0 && (meta.to < range.from || meta.from > range.to);
    if (!some) empty.welcome(meta.otlp);
    else if (outside) empty.elsewhere(meta);
    else empty.hide();
    grid.hidden = !some || outside;
  } catch {
    // The panels say that the server cannot be reached.
  } finally {
    metaOnItsWay = false;
    if (metaWanted) askMeta();
  }
}

let refreshed = now();
/** @type {number | undefined} */
let waiting;

/** A tick came: now, or when the pause is over. */
function ticked() {
  if (waiting !== undefined) return;
  const rest = refreshed + pause(range.step) - now();
  waiting = setTimeout(() => {
    waiting = undefined;
    refreshed = now();
    if (!document.hidden && windowOf(current(), now()).live) refresh(true);
  }, Math.max(0, rest * 1000));
}

/** New hot keys: only their graph asks again. */
let graphed = 0;
/** @type {number | undefined} */
let graphWaits;
function viewed() {
  if (graphWaits !== undefined) return;
  if (grid.hidden) askMeta();
  graphWaits = setTimeout(() => {
    graphWaits = undefined;
    graphed = now();
    const shown = windowOf(current(), now());
    if (!document.hidden && shown.live) graph.refresh(shown, true);
  }, Math.max(0, graphed + GRAPH_PAUSE - now()) * 1000);
}

const live = new Live({
  tick: (data) => {
    header.showTick(data);
    ticked();
  },
  graph: viewed,
  health: (health) => header.showHealth(health),
  back: () => refresh(true),
});
setInterval(() => {
  if (!document.hidden && now() - refreshed > IDLE && windowOf(current(), now()).live) ticked();
}, 5000);

const ranges = ["15m", "1h", "6h", "24h"];
help.listen({
  "?": () => help.open(),
  f: () => filters.field.focus(),
  "/": () => filters.field.focus(),
  c: () => ratio.chart.plot.focus(),
  q: () => toRequests(),
  g: () => graph.enter(),
  r: () => refresh(true),
  t: () => header.toggleTheme(),
  0: () => header.toggleCustom(),
  ...Object.fromEntries(ranges.map((name, i) => [String(i + 1), () => change({ range: name, from: null, to: null, picked: null })])),
  Escape: () => {
    const { trace, picked } = current();
    if (trace) drawer.close();
    else if (picked) change({ picked: null });
    else zoomOut();
  },
});
subscribe(() => refresh(false));
refresh(false);
live.start();
