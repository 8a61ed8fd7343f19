/** Hot keys, and which are used after which: a graph, its communities, and the key that is chosen. */
import { announce, el, fill } from "../dom.js";
import { bytes, clockSeconds, count, named, short } from "../format.js";
import { Communities } from "../graph/communities.js";
import { amount, Details, life } from "../graph/details.js";
import { titles } from "../graph/looks.js";
import { Stage } from "../graph/stage.js";
import { dataTable, Panel } from "../panel.js";
import { addFilter, change, current, query } from "../state.js";

/**
 * @typedef {import("../graph/stage.js").Node} Node
 * @typedef {{service: string, instance: string, at: number, keys: number, shown: boolean}} Process
 * @typedef {{at: number | null, instances: Process[], tracked_keys: number, tracked_edges: number, nodes: Node[],
 *   edges: import("../graph/layout.js").Edge[], communities: import("../graph/looks.js").Community[]}} Graph
 */
const AXES = ["service", "instance", "tenant", "modality"];

export class GraphPanel extends Panel {
  /** @param {() => void} toRequests */
  constructor(toRequests) {
    super({ id: "graph", title: "Hot keys", hint: "which are used after which", className: "full", table: true });
    this.chosenCommunity = "";
    this.stage = new Stage({ chosen: (key) => this.choose(key), read: (node) => this.read(node) });
    this.details = new Details({
      choose: (key) => {
        this.choose(key);
        this.stage.focus(key || this.stage.at);
      },
      filter: (key) => {
        addFilter("key", key);
        toRequests();
      },
    });
    this.communities = new Communities((id) => {
      this.chosenCommunity = this.chosenCommunity === id ? "" : id;
      if (this.loaded) this.draw(this.data);
    });
    this.explain = el("div", { class: "how", hidden: true });
    this.table = el("div", { hidden: true });
    this.side = el("div", { class: "beside" }, this.details.root, this.communities.root);
    this.both = el("div", { class: "graph" }, this.stage.root, this.side);
    this.body.append(this.both, this.table, this.explain);
    this.process = /** @type {HTMLSelectElement} */ (el("select", { "aria-label": "Process", hidden: true }));
    this.process.addEventListener("change", () => this.only(this.process.value));
    this.actions.prepend(this.process);
    this.said = "";
    this.receiver = location.origin;
  }

  /** @param {import("../state.js").Window} range @returns {[string, URLSearchParams]} */
  question(range) {
    const { filters } = current();
    return ["graph", query(range, {}, Object.fromEntries(AXES.filter((axis) => filters[axis]).map((axis) => [axis, filters[axis]])))];
  }

  /** One process, or all. @param {string} value its place in the list */
  only(value) {
    const { service: _service, instance: _instance, ...others } = current().filters;
    const one = value === "" ? null : this.data.instances[Number(value)];
    change({ filters: one ? { ...others, service: [one.service], instance: [one.instance] } : others });
  }

  /** @param {Node} node */
  read(node) {
    const title = node.community === null ? "no community" : `community ${this.titles?.get(node.community) ?? ""}`;
    return `key ${node.key}, score ${amount(node.score)}, ${title}, ${named(short(node.tenant, 60))}, ${named(short(node.modality, 60))}`;
  }

  /** @param {string} key "" = none */
  choose(key) {
    change({ hot: key }, { replace: true });
    const node = /** @type {Graph} */ (this.data).nodes.find((one) => one.key === key);
    if (node) announce(`${this.read(node)}, in ${node.tier || "no tier"}, stays hot: ${life(node)}`);
  }

  /** @param {Graph} data */
  draw(data) {
    const { nodes, edges, communities, instances } = data;
    const empty = !nodes.length && !communities.length;
    this.titles = titles(communities);
    this.both.hidden = empty || this.asTable;
    this.table.hidden = empty || !this.asTable;
    this.explain.hidden = !empty;
    this.showProcesses(instances);
    if (empty) this.hint.textContent = this.about.hint ?? "";
    if (empty) return this.showHow(instances.length > 0);
    const shown = instances.filter((one) => one.shown).length;
    const of = shown === 1 && data.tracked_keys > nodes.length ? ` of ${count(data.tracked_keys)}` : "";
    this.hint.textContent = `${nodes.length}${of} keys, ${edges.length} edges, ${shown === 1 ? "one process" : `${shown} processes`}${data.at === null ? "" : `, ${clockSeconds(data.at)}`}`;
    if (!communities.some((one) => one.id === this.chosenCommunity)) this.chosenCommunity = "";
    this.stage.community = this.chosenCommunity;
    this.stage.show(nodes, edges, this.titles);
    this.communities.show(communities, this.titles, this.chosenCommunity);
    this.showState();
    if (this.asTable) fill(this.table, this.asRows(data));
  }

  /** What the address says is chosen. */
  showState() {
    if (!this.loaded) return;
    const { nodes, edges } = /** @type {Graph} */ (this.data);
    const node = nodes.find((one) => one.key === current().hot);
    this.stage.chosen = node?.key ?? "";
    if (node && !this.stage.looked) this.stage.at = node.key;
    this.stage.mark();
    this.details.show(node, nodes, edges, (node?.community && this.titles?.get(node.community)) || "");
  }

  enter() {
    this.root.scrollIntoView({ block: "start" });
    this.stage.focus(this.stage.at);
  }

  /** @param {Process[]} instances */
  showProcesses(instances) {
    this.process.hidden = instances.length < 2;
    const { service, instance } = current().filters;
    const said = JSON.stringify(instances.map((one) => [one.service, one.instance]));
    if (said !== this.said) fill(this.process, el("option", { value: "" }, "All processes"), instances.map((one, i) => el("option", { value: i }, short(named(one.instance || one.service), 40))));
    this.said = said;
    const chosen = service?.length === 1 && instance?.length === 1 ? instances.findIndex((one) => one.service === service[0] && one.instance === instance[0]) : -1;
    this.process.value = chosen < 0 ? "" : String(chosen);
  }

  /** @param {boolean} some processes send views, of which nothing is asked for */
  showHow(some) {
    if (some) return fill(this.explain, el("p", { class: "none" }, "None of the hot keys is of what is filtered."));
    return fill(this.explain,
      el("p", { class: "none" }, "No process says which of its keys are hot, in this time. mmcache serve does with --otlp; a program, where its cache is watched:"),
      el("pre", {}, el("code", {}, how(this.receiver))),
      el("p", { class: "none" }, "Then keys that are used one after another stand together here, and which of them will stay hot is said."));
  }

  /** @param {Graph} data */
  asRows({ nodes, edges }) {
    /** @type {Map<number, [number, number]>} */
    const heaviest = new Map();
    for (const { source, target, weight } of edges) if (source !== target && weight > (heaviest.get(source)?.[1] ?? 0)) heaviest.set(source, [target, weight]);
    const heads = ["key", "score", "heat", "tenant", "modality", "tier", "size", "stays hot", "community", "mostly then"];
    return dataTable("Hot keys", heads, nodes.map((node, i) => [
      node.key, amount(node.score), amount(node.heat), named(short(node.tenant, 40)), named(short(node.modality, 40)), short(node.tier, 40) || "none", bytes(node.bytes), life(node),
      (node.community && this.titles?.get(node.community)) || "none", nodes[heaviest.get(i)?.[0] ?? -1]?.key ?? "",
    ]));
  }
}

const how = (/** @type {string} */ to) => `from mmcache.hotkeys import HotKeys\n\nhot = HotKeys(cache, otlp="${to}")`;
