/**
 * Where nodes stand: they push each other away, edges pull (Fruchterman and Reingold, 1991), communities keep together.
 * No chance in it: the same graph in the same box always stands the same. A step is O(n²) of at most 200 nodes; after
 * `STEPS` of them it is cool.
 * @typedef {{key: string, group: string, r: number, x: number, y: number, dx: number, dy: number}} Place
 * @typedef {{source: number, target: number, weight: number}} Edge
 */
const COOLING = 0.965;
const COLD = 0.25;
const APART = 3;

/** A number in 0…1 of a text: always the same. @param {string} text @param {number} salt */
export function chance(text, salt) {
  let hash = 2166136261 ^ salt;
  for (let i = 0; i < text.length; i += 1) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  hash = Math.imul(hash ^ (hash >>> 15), 2246822507);
  return ((hash ^ (hash >>> 13)) >>> 0) / 4294967296;
}

export class Layout {
  constructor() {
    this.width = 0;
    this.height = 0;
    /** @type {Place[]} */
    this.places = [];
    /** @type {Edge[]} */
    this.edges = [];
    this.joined = "";
    this.heat = 0;
  }

  get moving() {
    return this.heat > COLD && this.places.length > 0;
  }

  /** Everything keeps its share of the box. @param {number} width @param {number} height */
  resize(width, height) {
    const [x, y] = this.width ? [width / this.width, height / this.height] : [1, 1];
    this.width = width;
    this.height = height;
    for (const place of this.places) {
      place.x *= x;
      place.y *= y;
      this.inside(place);
    }
  }

  /** Who stays keeps its place; who is new begins beside those it belongs to.
   * @param {{key: string, group: string, r: number}[]} nodes hottest first @param {Edge[]} edges */
  show(nodes, edges) {
    const old = new Map(this.places.map((place) => [place.key, place]));
    const groups = [...new Set(nodes.map((node) => node.group))];
    const fresh = nodes.filter((node) => !old.has(node.key)).length;
    const mates = this.centres();
    this.places = nodes.map((node) => {
      const before = old.get(node.key);
      if (before) return { ...before, ...node };
      const centre = mates.get(node.group) ?? this.spot(groups.indexOf(node.group), groups.length);
      const turn = chance(node.key, 1) * 2 * Math.PI;
      const far = Math.sqrt(chance(node.key, 2)) * Math.min(this.width, this.height) * 0.14;
      return { ...node, x: centre.x + Math.cos(turn) * far, y: centre.y + Math.sin(turn) * far, dx: 0, dy: 0 };
    });
    for (const place of this.places) this.inside(place);
    // Which keys are joined, whatever their order: that changes with each view, and moves nothing.
    const joined = edges.map((edge) => `${nodes[edge.source].key}>${nodes[edge.target].key}`).sort().join();
    const moved = fresh > 0 || nodes.length !== old.size || joined !== this.joined;
    this.edges = edges;
    this.joined = joined;
    const most = Math.min(this.width, this.height) / 6;
    if (moved) this.heat = Math.max(this.heat, most * (fresh === nodes.length ? 1 : 0.04 + (0.6 * fresh) / nodes.length));
  }

  /** Of a group's place on a sunflower. @param {number} at @param {number} count */
  spot(at, count) {
    const turn = at * 2.399963;
    const far = Math.sqrt((at + 0.5) / Math.max(1, count)) * 0.42;
    return { x: this.width * (0.5 + Math.cos(turn) * far), y: this.height * (0.5 + Math.sin(turn) * far) };
  }

  /** @returns {Map<string, {x: number, y: number, count: number}>} the middle of each group */
  centres() {
    const found = new Map();
    for (const { group, x, y } of this.places) {
      const centre = found.get(group) ?? { x: 0, y: 0, count: 0 };
      centre.x += (x - centre.x) / (centre.count += 1);
      centre.y += (y - centre.y) / centre.count;
      found.set(group, centre);
    }
    return found;
  }

  /** One step cooler. @returns {boolean} whether there is one more */
  step() {
    const { places, edges } = this;
    if (!this.moving) return false;
    const ideal = 0.72 * Math.sqrt((this.width * this.height) / Math.max(places.length, 9));
    const square = ideal * ideal;
    const reach = 9 * square;
    for (const place of places) place.dx = place.dy = 0;
    for (let i = 0; i < places.length; i += 1) {
      const a = places[i];
      for (let j = i + 1; j < places.length; j += 1) {
        const b = places[j];
        const x = a.x - b.x || (chance(a.key, 3) - 0.5) * 0.1;
        const y = a.y - b.y || (chance(a.key, 4) - 0.5) * 0.1;
        const far = x * x + y * y;
        const near = a.r + b.r + APART;
        if (far > reach) continue;
        const push = (a.group === b.group ? 0.75 : 1.15) * (square / far) + (far < near * near ? (2 * (near - Math.sqrt(far))) / near * ideal / Math.sqrt(far) : 0);
        a.dx += x * push;
        a.dy += y * push;
        b.dx -= x * push;
        b.dy -= y * push;
      }
    }
    const heaviest = edges.reduce((most, edge) => Math.max(most, edge.weight), 1e-9);
    for (const { source, target, weight } of edges) {
      const a = places[source];
      const b = places[target];
      const x = a.x - b.x;
      const y = a.y - b.y;
      const pull = (Math.hypot(x, y) / ideal) * (0.06 + 0.5 * Math.sqrt(weight / heaviest)) * (a.group === b.group ? 1 : 0.35);
      a.dx -= x * pull;
      a.dy -= y * pull;
      b.dx += x * pull;
      b.dy += y * pull;
    }
    const centres = this.centres();
    for (const place of places) {
      const centre = centres.get(place.group);
      if (centre && place.group) {
        place.dx += (centre.x - place.x) * 0.5;
        place.dy += (centre.y - place.y) * 0.5;
      }
      place.dx += (this.width / 2 - place.x) * 0.12 * (this.height / this.width);
      place.dy += (this.height / 2 - place.y) * 0.12;
      const length = Math.hypot(place.dx, place.dy) || 1;
      const most = Math.min(length, this.heat) / length;
      place.x += place.dx * most;
      place.y += place.dy * most;
      this.inside(place);
    }
    this.heat *= COOLING;
    return this.moving;
  }

  /** @param {Place} place */
  inside(place) {
    const edge = place.r + 4;
    place.x = Math.min(this.width - edge, Math.max(edge, place.x));
    place.y = Math.min(this.height - edge, Math.max(edge, place.y));
  }
}
