/**
 * Elements, made without ever parsing text as HTML: data becomes text nodes and plain attributes, nothing else.
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {Record<string, unknown>} Attributes `on` holds listeners; false, null and undefined leave an attribute out
 */

const SVG = "http://www.w3.org/2000/svg";
const FORBIDDEN = /^(on.+|style|srcdoc|src|action|formaction|xlink:href)$/i;

/**
 * @param {Element} node
 * @param {Attributes} attributes
 */
export function assign(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(/** @type {object} */ (value))) node.addEventListener(event, listener);
      continue;
    }
    if (FORBIDDEN.test(name)) throw new TypeError(`the attribute ${name} is not for data`);
    if (value === false || value === null || value === undefined) node.removeAttribute(name);
    else if (name === "href") node.setAttribute(name, ownAddress(String(value)));
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  return node;
}

/** Only addresses on this page: `?…` and `#…`; anything else, `javascript:` above all, leads nowhere. @param {string} text */
function ownAddress(text) {
  return /^[?#]/.test(text) ? text : "#";
}

/** @param {Element} node @param {Child[]} children */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter((c) => c !== null && c !== undefined && c !== false).map(asNode));
  return node;
}

/** @param {unknown} child */
const asNode = (child) => (child instanceof Node ? child : document.createTextNode(String(child)));

/**
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  assign(node, attributes);
  return /** @type {HTMLElement} */ (fill(node, ...children));
}

/**
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  assign(node, attributes);
  return /** @type {SVGElement} */ (fill(node, ...children));
}

/**
 * Make the children of `parent` those of `items`, in order, keeping the nodes of items that stay (and with them focus).
 * @template T
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T) => string} keyOf
 * @param {(item: T) => Element} make
 * @param {(node: Element, item: T, index: number) => void} update
 */
export function reconcile(parent, items, keyOf, make, update) {
  const old = new Map();
  for (const node of parent.children) old.set(/** @type {any} */ (node).itemKey, node);
  let place = parent.firstElementChild;
  items.forEach((item, index) => {
    const key = keyOf(item);
    let node = old.get(key);
    if (node) old.delete(key);
    else {
      node = make(item);
      node.itemKey = key;
    }
    update(node, item, index);
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  });
  for (const node of old.values()) node.remove();
}

/** Say it to who listens and does not see: what is behind an open dialog is not heard. @param {string} text */
export function announce(text) {
  const box = document.querySelector("dialog[open] .announced") ?? document.getElementById("status");
  if (box) box.textContent = text;
}

const ICONS = {
  close: "M4 4l8 8M12 4l-8 8",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9M10.4 10.4L14 14",
  theme: "M8 1.8a6.2 6.2 0 1 0 0 12.4z M8 1.8a6.2 6.2 0 0 1 0 12.4",
  help: "M6 6a2.1 2.1 0 1 1 3 1.9c-.7.4-1 .8-1 1.6M8 12.1v.2",
  table: "M2.5 3.5h11v9h-11zM2.5 6.6h11M2.5 9.6h11M6.4 3.5v9",
  chart: "M2.5 2.5v11h11M5 10l2.6-3.6L10 8.6l3.2-4.4",
  back: "M9.5 3.5L5 8l4.5 4.5",
  next: "M6.5 3.5L11 8l-4.5 4.5",
  down: "M4 6.2L8 10.2l4-4",
  link: "M6.6 9.4a2.4 2.4 0 0 0 3.4 0l2.6-2.6a2.4 2.4 0 0 0-3.4-3.4l-.8.8M9.4 6.6a2.4 2.4 0 0 0-3.4 0L3.4 9.2a2.4 2.4 0 0 0 3.4 3.4l.8-.8",
  filter: "M2.5 4h11M4.8 8h6.4M7 12h2",
};

/** @param {keyof typeof ICONS} name */
export function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}
