// Rows follow the filter, the search and the sorting of their table; a long table is written in parts.
const PART = 200;
const MISSING = new Set([data.missing, ""]);
const byText = new Intl.Collator("en", { numeric: true });
const views = new Map();

function texts(column) {
  return column.texts || column.codes.map((code) => column.words[code]);
}

// The rows of a table: columns of texts, and what each row is about. `column` is the sorted one, or
// null; `isUp` is its direction; `wanted` are the words that a row must contain.
function viewOf(table) {
  if (!views.has(table)) {
    const source = table.dataset.packed ? unpacked(table.dataset.packed) : read(table);
    views.set(table, { ...source, limit: PART, column: null, isUp: true, wanted: [], found: null });
  }
  return views.get(table);
}

function unpacked(name) {
  const { about, columns } = data.tables[name];
  const kinds = Object.entries(about).map(([kind, column]) => [kind, texts(column)]);
  const full = columns.map((column) => ({ ...column, texts: texts(column) }));
  return { columns: full, rows: null, about: full[0].texts.map((text, at) => (
    Object.fromEntries(kinds.map(([kind, words]) => [kind, words[at]])))) };
}

function read(table) {
  const rows = [...table.tBodies[0].rows];
  const columns = [...table.tHead.rows[0].cells].map((head, at) => ({
    number: head.classList.contains("number"), hints: {},
    texts: rows.map((row) => row.cells[at].textContent),
  }));
  rows.forEach((row) => [...row.cells].forEach((made, at) => {
    if (made.title) columns[at].hints[made.textContent] = made.title;
  }));
  return { columns, rows, about: rows.map((row) => row.dataset) };
}

// What a search compares: the texts of a row and the full names behind its short ones.
function searched(view) {
  view.found = view.found || view.about.map((about, at) => view.columns
    .map(({ texts: all, hints }) => `${all[at]}\n${Object.hasOwn(hints, all[at]) ? hints[all[at]] : ""}`)
    .join("\n").toLowerCase());
  return view.found;
}

// The numbers of the rows that fit filter and search, in the order to show.
function orderOf(view) {
  const every = view.about.map((about, at) => at).filter((at) => isShown(view.about[at]));
  const found = view.wanted.length ? searched(view) : null;
  const fitting = found ? every.filter((at) => view.wanted.every((word) => found[at].includes(word))) : every;
  return view.column === null ? fitting : sorted(fitting, view.columns[view.column], view.isUp);
}

// Equal rows keep their order; a missing value is last in both directions.
function sorted(numbers, column, isUp) {
  const values = column.number ? column.texts.map(numberOf) : column.texts;
  const isMissing = (at) => MISSING.has(column.texts[at]);
  const compare = column.number ? (a, b) => values[a] - values[b] : (a, b) => byText.compare(values[a], values[b]);
  return [...numbers.filter((at) => !isMissing(at)).sort((a, b) => (isUp ? compare(a, b) : compare(b, a))),
    ...numbers.filter(isMissing)];
}

function numberOf(text) {
  return Number(text.replaceAll(",", ""));
}

function rowOf(columns, at) {
  return element("tr", {}, ...columns.map((column, number) => {
    const text = column.texts[at];
    const made = element(number === 0 ? "th" : "td", number === 0 ? { scope: "row" } : {}, text);
    if (column.number) made.className = "number";
    if (Object.hasOwn(column.hints, text)) made.title = column.hints[text];
    return made;
  }));
}

function writeTable(table, view) {
  const fitting = orderOf(view), written = fitting.slice(0, view.limit);
  table.tBodies[0].replaceChildren(...written.map((at) => rowOf(view.columns, at)));
  const line = document.querySelector(`[data-rows="${table.dataset.packed}"]`);
  const isWhole = shown.isAll && view.wanted.length === 0;
  line.replaceChildren(element("span", { role: "status" },
    `${written.length.toLocaleString("en")} of ${plural(fitting.length, "row")}`
    + (isWhole ? "." : ` that fit, of ${view.about.length.toLocaleString("en")}.`)));
  if (written.length < fitting.length) {
    const button = element("button", { type: "button" }, `Show ${Math.min(PART, fitting.length - written.length)} more`);
    button.addEventListener("click", () => { view.limit += PART; writeTable(table, view); });
    line.append(" ", button);
  }
}

function orderRows(table, view) {
  const fitting = orderOf(view);
  for (const row of view.rows) row.hidden = true;
  for (const at of fitting) view.rows[at].hidden = false;
  table.tBodies[0].append(...fitting.map((at) => view.rows[at]));
  hideColumns(table);
  if (view.wanted.length) tellTools(table, `${fitting.length} of ${plural(view.rows.length, "row")} fit.`);
}

// Of a table with a column for each platform.
function hideColumns(table) {
  const heads = [...table.tHead.rows[0].cells];
  if (!heads.some((head) => head.dataset.platform)) return;
  const hidden = heads.map((head) => !isShown(head.dataset));
  for (const row of table.rows) hidden.forEach((is, at) => { row.cells[at].hidden = is; });
}

function isOpen(table) {
  const around = table.closest("details");
  return around === null || around.open;
}

function followFilter(table) {
  // A closed table is written only when it is opened.
  if (!isOpen(table)) return;
  if (table.dataset.packed) writeTable(table, viewOf(table));
  else orderRows(table, viewOf(table));
}

function followAll() {
  document.querySelectorAll("main table[id]").forEach(followFilter);
}

document.addEventListener("toggle", (event) => {
  if (event.target instanceof HTMLDetailsElement && event.target.open) {
    event.target.querySelectorAll("table[id]").forEach(followFilter);
  }
}, true);
