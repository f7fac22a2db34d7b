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

offerFilters();
offerCopies();
offerTools();
const start = readAddress();
lookAgain();
Object.keys(KINDS).forEach(offerChoices);
apply(start.unknown);
if (start.at) goTo(start.at);
addEventListener("hashchange", followAddress);
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not(.source):not(.pick):not(.explanation):not(.words)")) details.open = true;
});
