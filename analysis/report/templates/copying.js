// Copies text. If the browser does not allow it, `open` shows the text in an area, which is selected.
async function copyText(text, status, open) {
  try {
    await navigator.clipboard.writeText(text);
    status.textContent = "Copied.";
  } catch {
    const area = open();
    area.focus();
    area.select();
    status.textContent = document.execCommand("copy") ? "Copied." : "Selected: press Ctrl+C to copy.";
  }
}

// A spreadsheet reads a text that starts in this way as a formula, and names come from data.
const FORMULA = /^[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-]/;

// The rows of a table as they are sorted, filtered and searched, all parts of a long one; figures
// as on the page, without commas between thousands.
function tableText(table, form) {
  const view = viewOf(table), heads = [...table.tHead.rows[0].cells];
  const on = heads.map((head, at) => at).filter((at) => !heads[at].hidden);
  const lines = [on.map((at) => safe(heads[at].textContent)),
    ...orderOf(view).map((row) => on.map((at) => plainText(view.columns[at], row)))];
  const write = form === "CSV" ? csvField : (text) => text.replace(/[\t\r\n]+/g, " ");
  return lines.map((line) => line.map(write).join(form === "CSV" ? "," : "\t") + "\r\n").join("");
}

function plainText(column, at) {
  const text = column.texts[at];
  if (MISSING.has(text)) return "";
  return column.number ? text.replaceAll(",", "") : safe(text);
}

function safe(text) {
  return FORMULA.test(text) ? `'${text}` : text;
}

function csvField(text) {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
