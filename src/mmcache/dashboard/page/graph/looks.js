/** How communities look: a colour and a shape each, for as long as the page is open; and what they are called. */
import { svg } from "../dom.js";
import { named, short } from "../format.js";

/**
 * @typedef {{id: string, number: number, service: string, instance: string, instances: number, size: number, weight: number,
 *   state: string, since: number, until: number | null, merged: string[]}} Community
 */
const COLOURS = 11;
const NONE = 12;
/** Corners of shapes about the size of a circle of radius 1; the first is a circle. @type {number[][]} */
const CORNERS = [
  [],
  [-0.88, -0.88, 0.88, -0.88, 0.88, 0.88, -0.88, 0.88],
  [0, -1.25, 1.25, 0, 0, 1.25, -1.25, 0],
  [0, -1.28, 1.2, 0.82, -1.2, 0.82],
  [-0.58, -1, 0.58, -1, 1.16, 0, 0.58, 1, -0.58, 1, -1.16, 0],
  [0, 1.28, -1.2, -0.82, 1.2, -0.82],
  [-0.4, -1.1, 0.4, -1.1, 0.4, -0.4, 1.1, -0.4, 1.1, 0.4, 0.4, 0.4, 0.4, 1.1, -0.4, 1.1, -0.4, 0.4, -1.1, 0.4, -1.1, -0.4, -0.4, -0.4],
];
/** @type {Map<string, number>} */
const seen = new Map();

/** @param {string | null} community @returns {{slot: number, shape: number}} colours and shapes come round after 77 */
export function looks(community) {
  if (community === null || community === "") return { slot: NONE, shape: 0 };
  const at = seen.get(community) ?? seen.size;
  seen.set(community, at);
  return { slot: (at % COLOURS) + 1, shape: at % CORNERS.length };
}

/** Its outline, as a path. @param {number} shape @param {number} r pixels */
export function outline(shape, r) {
  const corners = CORNERS[shape];
  if (!corners.length) return `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`;
  let path = "";
  for (let i = 0; i < corners.length; i += 2) path += `${i ? "L" : "M"}${(corners[i] * r).toFixed(2)},${(corners[i + 1] * r).toFixed(2)}`;
  return `${path}Z`;
}

/** A small one, for a list. @param {string | null} community */
export function sign(community) {
  const { slot, shape } = looks(community);
  return svg("svg", { class: `sign s${slot}`, viewBox: "-8 -8 16 16", "aria-hidden": "true" }, svg("path", { d: outline(shape, 5.6) }));
}

/** Its number; with its process where another's has the same. @param {Community[]} communities @returns {Map<string, string>} by id */
export function titles(communities) {
  const counts = new Map();
  for (const { number } of communities) counts.set(number, (counts.get(number) ?? 0) + 1);
  return new Map(communities.map((one) => [one.id, counts.get(one.number) > 1 ? `${one.number} · ${short(named(one.instance), 14)}` : String(one.number)]));
}
