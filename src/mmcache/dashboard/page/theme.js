// Runs before the first paint, so that a chosen theme never flashes. No module: those wait for the document.
(() => {
  "use strict";
  let chosen = null;
  try {
    chosen = localStorage.getItem("mmcache.theme");
  } catch {
    // Storage is forbidden here: the system's choice holds.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
