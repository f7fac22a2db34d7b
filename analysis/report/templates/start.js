function apply(unknown = []) {
  lookAgain();
  for (const kind of Object.values(KINDS)) kind.limit = kind.step;
  showState(unknown);
  followAll();
  queue = [];
  Object.keys(KINDS).forEach(layOut);
  draw();
}

function chosenText() {
  return JSON.stringify([...chosen].map(([name, values]) => [name, [...values]]));
}

// A plain anchor also changes the address, but needs no redraw.
function followAddress() {
  const before = chosenText(), { unknown, at } = readAddress();
  if (chosenText() !== before) apply(unknown);
  if (at) goTo(at);
}

offerAnswer();
offerFilters();
offerTools();
const start = readAddress();
lookAgain();
Object.keys(KINDS).forEach(offerChoices);
apply(start.unknown);
if (start.at) goTo(start.at);
for (const fold of document.querySelectorAll(".fold")) {
  const charts = fold.querySelector("[data-charts]");
  if (charts) fold.addEventListener("toggle", () => { if (fold.open) { layOut(charts.dataset.charts); draw(); } });
}
addEventListener("hashchange", followAddress);
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not(.pick):not(.explanation):not(.words)")) details.open = true;
});
