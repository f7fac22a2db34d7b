// Copies a table's text. If the browser does not allow it, the text is opened and selected.
async function copyText(button) {
  const area = document.getElementById(button.dataset.copy);
  const status = button.parentElement.querySelector("[role=status]");
  try {
    await navigator.clipboard.writeText(area.value);
    status.textContent = "Copied.";
  } catch {
    area.closest("details").open = true;
    area.focus();
    area.select();
    status.textContent = document.execCommand("copy") ? "Copied." : "Selected: press Ctrl+C to copy.";
  }
}

function offerCopies() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", () => copyText(button));
  }
}
