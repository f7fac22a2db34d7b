function apply(unknown = []) {
  lookAgain();
  for (const kind of Object.values(KINDS)) kind.limit = kind.step;
  showState(unknown);
  followAll();
  queue = [];
  Object.keys(KINDS).forEach(layOut);
  draw();
}

function applyAddress() {
  const { unknown, at } = readAddress();
  apply(unknown);
  if (at) goTo(at);
}

offerFilters();
offerCopies();
Object.keys(KINDS).forEach(offerChoices);
applyAddress();
addEventListener("hashchange", applyAddress);
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not(.source):not(.pick)")) details.open = true;
});
