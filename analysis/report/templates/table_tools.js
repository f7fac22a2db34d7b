// The controls of each table: headings that sort, a search, and copies. Without scripts the tables
// are complete without them.
const SEARCHED_ROWS = 8;

function toolsOf(table) {
  return table.closest(".scroll").previousElementSibling;
}

function tellTools(table, text) {
  toolsOf(table).querySelector("[role=status]").textContent = text;
}

function offerTools() {
  for (const table of document.querySelectorAll("main table[id]")) {
    const count = table.tBodies[0].rows.length;
    if (count === 0) continue;
    const name = table.caption.firstChild.textContent.trim();
    const tools = element("p", { class: "tools" });
    if (count >= SEARCHED_ROWS) tools.append(findIn(table, name));
    for (const form of ["TSV", "CSV"]) tools.append(copyOf(table, name, form));
    tools.append(element("span", { role: "status" }));
    table.closest(".scroll").before(tools);
    if (count > 1) [...table.tHead.rows[0].cells].forEach((head, at) => offerSorting(table, head, at));
  }
}

function findIn(table, name) {
  const search = element("input", { type: "search", placeholder: "Find rows", "aria-label": `Find in ${name}` });
  search.addEventListener("input", () => {
    const view = viewOf(table);
    view.wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    view.limit = PART;
    tellTools(table, "");
    followFilter(table);
  });
  return search;
}

function copyOf(table, name, form) {
  const button = element("button", { type: "button", "aria-label": `Copy ${name} as ${form}` }, `Copy ${form}`);
  button.addEventListener("click", () => {
    const text = tableText(table, form), tools = toolsOf(table);
    tools.querySelector("textarea")?.remove();
    copyText(text, tools.querySelector("[role=status]"), () => {
      const area = element("textarea", { readonly: "", rows: "6", spellcheck: "false", "aria-label": `${name} as ${form}` });
      area.value = text;
      tools.append(area);
      return area;
    });
  });
  return button;
}

// First ascending, then descending, then the order of the page.
function offerSorting(table, head, at) {
  const button = element("button", { type: "button", class: "sort" }, ...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const view = viewOf(table), isFirst = view.column !== at;
    view.column = isFirst || view.isUp ? at : null;
    view.isUp = isFirst;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    if (view.column !== null) head.setAttribute("aria-sort", view.isUp ? "ascending" : "descending");
    followFilter(table);
  });
}
