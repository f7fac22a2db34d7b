// Rows follow the filter; a long table is written in parts.
const PART = 200;
const unpacked = new Map();

function texts(column) {
  return column.texts || column.codes.map((code) => column.words[code]);
}

function unpack(name) {
  if (!unpacked.has(name)) {
    const { about, columns } = data.tables[name];
    const kinds = Object.entries(about).map(([kind, column]) => [kind, texts(column)]);
    const count = texts(columns[0]).length;
    const rows = Array.from({ length: count }, (_, at) => (
      Object.fromEntries(kinds.map(([kind, words]) => [kind, words[at]]))));
    unpacked.set(name, { about: rows, limit: PART,
      columns: columns.map((column) => ({ ...column, texts: texts(column) })) });
  }
  return unpacked.get(name);
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

function writeTable(table) {
  const name = table.dataset.packed, long = unpack(name);
  const fitting = long.about.map((about, at) => at).filter((at) => isShown(long.about[at]));
  const written = fitting.slice(0, long.limit);
  table.tBodies[0].replaceChildren(...written.map((at) => rowOf(long.columns, at)));
  const line = document.querySelector(`[data-rows="${name}"]`);
  line.replaceChildren(element("span", { role: "status" },
    `${written.length.toLocaleString("en")} of ${plural(fitting.length, "row")}`
    + (shown.isAll ? "." : ` that fit, of ${long.about.length.toLocaleString("en")}.`)));
  if (written.length < fitting.length) {
    const button = element("button", { type: "button" }, `Show ${Math.min(PART, fitting.length - written.length)} more`);
    button.addEventListener("click", () => { long.limit += PART; writeTable(table); });
    line.append(" ", button);
  }
}

function isOpen(table) {
  const around = table.closest("details");
  return around === null || around.open;
}

function followFilter(table) {
  if (table.dataset.packed) {
    // A closed table is written only when it is opened.
    if (isOpen(table)) writeTable(table);
    return;
  }
  for (const row of table.tBodies[0].rows) row.hidden = !isShown(row.dataset);
}

function followAll() {
  document.querySelectorAll("main table").forEach(followFilter);
}

document.addEventListener("toggle", (event) => {
  if (event.target instanceof HTMLDetailsElement && event.target.open) {
    event.target.querySelectorAll("table").forEach(followFilter);
  }
}, true);
