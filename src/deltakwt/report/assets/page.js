"use strict";
// Light, dark, or as the system has it.
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

// A tap on a heading sorts by its column: up, then down. Empty cells stay last.
const key = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.sort === undefined
    ? cell.textContent
    : cell.dataset.sort === "" ? null : Number(cell.dataset.sort);
};
const compare = (a, b) => typeof a === "number" ? a - b : String(a).localeCompare(String(b));

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  heads.forEach((head, column) => head.querySelector("button")?.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach((other) => other.hasAttribute("aria-sort") && other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows].map((row) => [key(row, column), row]);
    rows.sort(([a], [b]) => a === null || b === null
      ? (a === null) - (b === null)
      : down ? compare(b, a) : compare(a, b));
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }));
}
