/** The moment that is pointed at: one for all charts, so that a dip in one is found in the others. */

/** @type {Set<(at: number | null) => void>} */
const listeners = new Set();
/** @type {number | null} */
let now = null;

export const cursor = () => now;

/** @param {(at: number | null) => void} listener */
export const onCursor = (listener) => listeners.add(listener);

/** @param {number | null} at Unix seconds */
export function point(at) {
  if (at === now) return;
  now = at;
  for (const listener of listeners) listener(at);
}
