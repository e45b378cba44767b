"use strict";

// The text of a cell; numbers sort by their value, and empty cells stand last in either direction.
const textOf = (row, column) => row.cells[column].textContent.trim();
function compareCells(a, b) {
  if (!a || !b) return null;
  const [x, y] = [parseFloat(a), parseFloat(b)];
  return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
}

function sortBy(heading) {
  const table = heading.closest("table");
  const column = heading.cellIndex;
  const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
  const body = table.tBodies[0];
  const rows = [...body.rows].sort((first, second) => {
    const [a, b] = [textOf(first, column), textOf(second, column)];
    return compareCells(a, b) === null ? (a ? -1 : 0) + (b ? 1 : 0) : sign * compareCells(a, b);
  });
  body.append(...rows);
}

// Headings become buttons that sort.
for (const heading of document.querySelectorAll(".sortable thead th")) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...heading.childNodes);
  button.addEventListener("click", () => sortBy(heading));
  heading.append(button);
}

// A row is shown if it has every chosen value and the searched text.
const filter = document.getElementById("filter");
function showMatching() {
  const { text, ...chosen } = Object.fromEntries(new FormData(filter));
  const rows = [...document.querySelectorAll("#all-claims tbody tr")];
  for (const row of rows) {
    const fits = Object.entries(chosen).every(([name, value]) => !value || row.dataset[name] === value);
    row.hidden = !fits || !row.textContent.toLowerCase().includes(text.toLowerCase());
  }
  filter.querySelector("output").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} shown`;
}
if (filter) {
  filter.addEventListener("input", showMatching);
  filter.addEventListener("submit", (event) => event.preventDefault());
  filter.addEventListener("reset", () => setTimeout(showMatching));
  showMatching();
}

// A link leads into an experiment that is folded.
function unfoldTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", unfoldTarget);
unfoldTarget();

const large = document.getElementById("large");
for (const button of document.querySelectorAll(".enlarge")) {
  button.addEventListener("click", () => {
    const shown = button.querySelector("img");
    Object.assign(large.querySelector("img"), { src: shown.src, alt: shown.alt });
    large.showModal();
  });
}
large?.addEventListener("click", (event) => event.target === large && large.close());
