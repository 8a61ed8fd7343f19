/** The drawn graph: nodes that can be pointed at, clicked and reached by keys; edges with a direction. */
import { assign, el, fill, reconcile, svg } from "../dom.js";
import { Layout } from "./layout.js";
import { looks, outline } from "./looks.js";

/**
 * @typedef {{key: string, score: number, parts: Record<string, number>, heat: number, modality: string, tenant: string, tier: string,
 *   bytes: number, expected_hours: number | null, confidence: number | null, community: string | null, instances: number}} Node
 * @typedef {import("./layout.js").Edge} Edge
 */
const BUDGET = 6; // milliseconds of a frame
const BESIDE = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export class Stage {
  /** @param {{chosen: (key: string) => void, read: (node: Node) => string}} owner */
  constructor(owner) {
    this.owner = owner;
    this.layout = new Layout();
    /** @type {Node[]} */
    this.nodes = [];
    /** @type {Edge[]} */
    this.edges = [];
    /** @type {Map<string, string>} */
    this.titles = new Map();
    this.chosen = "";
    this.community = "";
    this.looked = "";
    this.at = "";
    this.frame = 0;
    const arrow = svg("marker", { id: "graph-arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0,.8L7.6,4L0,7.2Z" }));
    this.lines = svg("g", { class: "edges", "aria-hidden": "true" });
    this.dots = svg("g", { class: "nodes" });
    this.words = svg("g", { class: "words", "aria-hidden": "true" });
    this.canvas = svg("svg", { class: "canvas", role: "group" }, svg("defs", {}, arrow), this.lines, this.dots, this.words);
    this.root = el("div", { class: "stage", "data-settled": "false" }, this.canvas);
    new ResizeObserver(() => this.resize()).observe(this.root);
    this.dots.addEventListener("keydown", (event) => this.key(/** @type {KeyboardEvent} */ (event)));
    this.dots.addEventListener("click", (event) => this.pick(this.keyOf(event.target)));
    this.dots.addEventListener("pointerover", (event) => this.look(this.keyOf(event.target)));
    this.dots.addEventListener("pointerleave", () => this.look(""));
    this.dots.addEventListener("focusin", (event) => this.focused(this.keyOf(event.target)));
    this.dots.addEventListener("focusout", () => this.look(""));
  }

  /** @param {EventTarget | null} target */
  keyOf(target) {
    return /** @type {any} */ (target instanceof Element ? target.closest(".node") : null)?.itemKey ?? "";
  }

  /** @param {Node[]} nodes @param {Edge[]} edges @param {Map<string, string>} titles of communities */
  show(nodes, edges, titles) {
    this.nodes = nodes;
    this.edges = edges;
    this.titles = titles;
    if (!nodes.some((node) => node.key === this.at)) this.at = nodes[0]?.key ?? "";
    this.draw();
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.root;
    if (!width || !height || (width === this.layout.width && height === this.layout.height)) return;
    const first = !this.layout.width;
    this.layout.resize(width, height);
    assign(this.canvas, { width, height, viewBox: `0 0 ${width} ${height}` });
    if (first) this.draw();
    else this.position();
  }

  /** How large a node is: by its heat, or by its score where nobody says a heat. */
  sizes() {
    const by = this.nodes.some((node) => node.heat > 0) ? "heat" : "score";
    const most = Math.max(1e-9, ...this.nodes.map((node) => node[by]));
    const room = Math.sqrt((this.layout.width * this.layout.height) / Math.max(1, this.nodes.length));
    const unit = Math.min(1, Math.max(0.5, room / 48));
    return this.nodes.map((node) => unit * (5 + 12 * Math.sqrt(Math.max(0, node[by]) / most)));
  }

  draw() {
    if (!this.layout.width) return;
    const sizes = this.sizes();
    this.layout.show(this.nodes.map((node, i) => ({ key: node.key, group: node.community ?? "", r: sizes[i] })), this.edges);
    reconcile(this.dots, this.nodes, (node) => node.key, () => svg("g", { role: "button", tabindex: "-1" }, svg("title"), svg("path", { class: "hit" }), svg("path", { class: "shape" })), (dot, node, i) => {
      const { slot, shape } = looks(node.community);
      assign(dot, { class: `node s${slot}${node.community === null ? " alone" : ""}`, "aria-label": this.owner.read(node), "data-key": node.key });
      dot.children[0].textContent = this.owner.read(node);
      assign(dot.children[1], { d: outline(0, Math.max(12, sizes[i] + 3)) });
      assign(dot.children[2], { d: outline(shape, sizes[i]) });
    });
    const most = Math.max(1e-9, ...this.edges.map((edge) => edge.weight));
    const nodes = this.nodes;
    reconcile(this.lines, this.edges, (edge) => `${nodes[edge.source].key}>${nodes[edge.target].key}`, () => svg("path", { class: "edge", "marker-end": "url(#graph-arrow)" }), (line, edge) => {
      const share = Math.sqrt(edge.weight / most);
      assign(line, { "stroke-width": (0.6 + 2.6 * share).toFixed(2), "stroke-opacity": (0.22 + 0.55 * share).toFixed(2) });
    });
    const shown = [...new Set(this.nodes.map((node) => node.community))].filter((id) => id !== null && this.titles.has(id));
    reconcile(this.words, shown, (id) => String(id), () => svg("text", { class: "word" }), (word, id) => (word.textContent = this.titles.get(String(id))?.split(" · ")[0] ?? ""));
    assign(this.canvas, { "aria-label": `${this.nodes.length} keys, ${this.edges.length} edges. Arrow keys move between keys, Enter shows one.` });
    this.mark();
    this.move();
  }

  /** Goes on until all stand; without motion, only how they stand at last is shown. */
  move() {
    if (this.frame) return;
    this.root.dataset.settled = "false";
    const go = () => {
      this.frame = 0;
      const still = calm();
      const end = performance.now() + BUDGET;
      let steps = 0;
      let more = true;
      while (more && performance.now() < end && (still || steps < 2)) {
        more = this.layout.step();
        steps += 1;
      }
      if (!still || !more) this.position();
      if (more) this.frame = requestAnimationFrame(go);
      else this.root.dataset.settled = "true";
    };
    this.frame = requestAnimationFrame(go);
  }

  position() {
    const { places } = this.layout;
    places.forEach((place, i) => this.dots.children[i]?.setAttribute("transform", `translate(${place.x.toFixed(1)},${place.y.toFixed(1)})`));
    this.layout.edges.forEach((edge, i) => this.lines.children[i]?.setAttribute("d", this.curve(places[edge.source], places[edge.target])));
    const centres = this.layout.centres();
    for (const word of this.words.children) {
      const centre = centres.get(/** @type {any} */ (word).itemKey);
      if (centre) assign(word, { x: centre.x.toFixed(1), y: (centre.y + 5).toFixed(1) });
    }
  }

  /** From rim to rim, bent to one side: there and back are two. @param {import("./layout.js").Place} a @param {import("./layout.js").Place} b */
  curve(a, b) {
    if (a === b) return `M${a.x.toFixed(1)},${(a.y - a.r).toFixed(1)}c${a.r},${-2 * a.r} ${2 * a.r},0 ${a.r},${a.r}`;
    const far = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const [x, y] = [(b.x - a.x) / far, (b.y - a.y) / far];
    const bend = Math.min(26, far * 0.14);
    const middle = [(a.x + b.x) / 2 - y * bend, (a.y + b.y) / 2 + x * bend];
    const into = Math.hypot(b.x - middle[0], b.y - middle[1]) || 1;
    const end = [b.x - ((b.x - middle[0]) / into) * (b.r + 2), b.y - ((b.y - middle[1]) / into) * (b.r + 2)];
    return `M${a.x.toFixed(1)},${a.y.toFixed(1)}Q${middle[0].toFixed(1)},${middle[1].toFixed(1)} ${end[0].toFixed(1)},${end[1].toFixed(1)}`;
  }

  /** What is chosen, and what is looked at. */
  mark() {
    const focus = this.looked || this.chosen;
    const lit = new Set(focus ? [focus] : []);
    const keys = this.nodes.map((node) => node.key);
    this.edges.forEach((edge, i) => {
      const ends = [keys[edge.source], keys[edge.target]];
      const touches = focus !== "" && ends.includes(focus);
      if (touches) ends.forEach((key) => lit.add(key));
      this.lines.children[i]?.classList.toggle("lit", touches);
    });
    if (!focus && this.community) for (const node of this.nodes) if (node.community === this.community) lit.add(node.key);
    this.canvas.classList.toggle("parted", lit.size > 0);
    this.nodes.forEach((node, i) => {
      const dot = this.dots.children[i];
      dot?.classList.toggle("lit", lit.has(node.key));
      dot?.classList.toggle("chosen", node.key === this.chosen);
      if (dot) assign(dot, { "aria-pressed": String(node.key === this.chosen), tabindex: node.key === this.at ? "0" : "-1" });
    });
  }

  /** @param {string} key */
  look(key) {
    if (key === this.looked) return;
    this.looked = key;
    this.mark();
  }

  /** @param {string} key */
  focused(key) {
    this.at = key;
    this.looked = key;
    this.mark();
  }

  /** @param {string} key */
  pick(key) {
    if (key) this.owner.chosen(key === this.chosen ? "" : key);
  }

  /** @param {string} key */
  focus(key) {
    const i = this.nodes.findIndex((node) => node.key === key);
    /** @type {SVGElement | undefined} */ (this.dots.children[i])?.focus();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const here = this.nodes.findIndex((node) => node.key === this.keyOf(event.target));
    const last = this.nodes.length - 1;
    /** @type {Record<string, number>} */
    const jumps = { Home: 0, End: last, PageUp: Math.max(0, here - 1), PageDown: Math.min(last, here + 1) };
    if (event.key in BESIDE) this.focus(this.beside(here, BESIDE[event.key]));
    else if (event.key in jumps) this.focus(this.nodes[jumps[event.key]].key);
    else if (event.key === "Enter" || event.key === " ") this.pick(this.nodes[here].key);
    else if (event.key === "Escape" && this.chosen) this.owner.chosen("");
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** The nearest in a direction; itself where there is none. @param {number} here @param {number[]} direction */
  beside(here, [x, y]) {
    const from = this.layout.places[here];
    let best = { key: from.key, far: Infinity };
    for (const place of this.layout.places) {
      const along = (place.x - from.x) * x + (place.y - from.y) * y;
      const across = Math.abs((place.x - from.x) * y) + Math.abs((place.y - from.y) * x);
      const far = along + 2.2 * across;
      if (place !== from && along > 1 && across <= along * 1.7 && far < best.far) best = { key: place.key, far };
    }
    return best.key;
  }

  clear() {
    fill(this.lines);
    fill(this.dots);
    fill(this.words);
  }
}
