/** One colour a name for as long as the page is open, so that a filter does not repaint what stays. */

const SLOTS = 11;
const OTHER = 12;
/** @type {Map<string, Map<string, number>>} */
const taken = new Map();

/** @param {string} axis @param {string[]} names in the order in which they may choose */
export function reserve(axis, names) {
  for (const name of names) slotOf(axis, name);
}

/** @param {string} axis @param {string} name @returns {number} 1…12, the classes s1…s12 */
export function slotOf(axis, name) {
  if (axis === "reason") return REASONS[name]?.slot ?? OTHER;
  if (name === "other") return OTHER;
  const names = taken.get(axis) ?? new Map();
  taken.set(axis, names);
  if (!names.has(name)) names.set(name, (names.size % SLOTS) + 1);
  return names.get(name);
}

/** The slots of what one chart shows: where two of them share a colour, the later one gets a free one.
 * @param {string} axis @param {string[]} names */
export function slotsOf(axis, names) {
  const used = new Set();
  return names.map((name) => {
    let slot = slotOf(axis, name);
    for (let other = 1; used.has(slot) && other <= SLOTS; other += 1) if (!used.has(other)) slot = other;
    used.add(slot);
    return slot;
  });
}

/** The miss reasons, in the order in which they are stacked. @type {Record<string, {slot: number, words: string}>} */
export const REASONS = {
  signature: { slot: 4, words: "stored under another signature (model version, preprocessing, dtype…)" },
  absent: { slot: 1, words: "never stored, or so long ago that nobody remembers" },
  evicted: { slot: 2, words: "was here, and left for want of room" },
  expired: { slot: 7, words: "its deadline is over" },
  denied: { slot: 8, words: "the caller may not have it" },
  corrupt: { slot: 11, words: "its bytes fail the checksum" },
  bypassed: { slot: 9, words: "the cache was switched off for it" },
  abstained: { slot: 5, words: "something near is stored, and is not trusted" },
  timeout: { slot: 6, words: "a tier was late" },
  "tier-down": { slot: 10, words: "a tier is not there" },
  "stale-lease": { slot: 3, words: "this process may have missed an invalidation" },
};
