/** A panel whose body scrolls says so: how many of its items lie below its edge, and leads there. */
import { el } from "./dom.js";

/** @param {import("./panel.js").Panel} panel @param {string} items */
export function below(panel, items) {
  const { body } = panel;
  const button = el("button", { type: "button", class: "below", hidden: true });
  button.addEventListener("click", () => body.scrollBy({ top: body.clientHeight - 40 }));
  panel.root.append(button);
  const look = () => {
    const edge = body.getBoundingClientRect().bottom;
    const hidden = [...body.querySelectorAll(items)].filter((item) => item.getBoundingClientRect().bottom > edge + 6).length;
    const more = body.scrollTop + body.clientHeight < body.scrollHeight - 6;
    button.hidden = !more;
    button.textContent = `${hidden || ""} more below`.trim();
  };
  body.addEventListener("scroll", look, { passive: true });
  const sizes = new ResizeObserver(look);
  for (const part of [body, ...body.children]) sizes.observe(part);
}
