// Builds the panels of each kind and draws the visible ones first.
const KINDS = {
  transfer: { step: MAX_SIDE, noun: "platform", of: comparedPlatforms, panels: matrixPanels,
    pick: spread, none: "This page compares no pair of the selected platforms over at least five models: "
      + "`fleetrank report show transfer` compares all pairs." },
  frontier: { step: 4, noun: "pair", of: frontierPairs, panels: frontierPanels, offer: offerEnds,
    none: "No selected pair is on this page: `fleetrank report show frontier` lists all." },
  flops: { step: 6, noun: "platform", panels: ranksPanels,
    of: () => shown.platforms.filter((number) => rankRows(number).length > 0) },
  latency: { step: 6, noun: "platform", panels: latencyPanels,
    of: () => shown.platforms.filter((number) => shown.models.some((model) => cell(number, model, "ms") !== null)),
    choices: [["absolute", "ms, one scale for all"], ["relative", "relative to each median"]] },
  history: { step: 4, noun: "platform", panels: historyPanels, pick: (all, most) => all.slice(0, most),
    of: () => data.history.map((_, at) => at).filter((at) => shown.platforms.includes(data.history[at].platform)) },
  scaling: { step: 6, noun: "group of curves", nouns: "groups of curves", panels: growthPanels,
    of: () => data.scaling.map((_, number) => number).filter((number) => growthRows(number, "ms").length > 0),
    choices: Object.entries({ ms: "latency", per_s: "rate", mb: "peak memory" }) },
  sustained: { step: 4, noun: "platform", panels: sustainedPanels,
    of: () => data.sustained.map((_, number) => number).filter((number) => sustainedRows(number).length > 0) },
  turns: { step: 4, noun: "platform", panels: turnsPanels, of: () => data.turns.map((_, number) => number) },
  phases: { step: 6, noun: "platform", panels: phasePanels, offer: offerPhases,
    of: () => shown.platforms.filter((number) => bothMeasured(number).length > 0),
    none: "No selected platform has both workloads." },
  rates: { step: 6, noun: "platform", panels: ratePanels, offer: offerPhases,
    of: () => shown.platforms.filter((number) => phaseRows(number, "per_s").length > 0) },
  contexts: { step: 6, noun: "platform", panels: contextPanels,
    of: () => shown.platforms.filter((number) => contextRows(number).length > 0) },
  memory: { step: 6, noun: "platform", panels: memoryPanels,
    of: () => shown.platforms.filter((number) => memoryRows(number).length > 0) },
};
for (const kind of Object.values(KINDS)) {
  kind.pick = kind.pick || spread;
  kind.limit = kind.step;
  kind.choice = kind.choices ? kind.choices[0][0] : null;
}
let queue = [], turn = 0, isDrawing = false, drawn = 0;

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function layOut(name) {
  const kind = KINDS[name], grid = document.querySelector(`[data-charts="${name}"]`);
  // A closed part of the page has no width to draw in.
  if (!grid || !grid.closest("details").open) return;
  const all = kind.of(), panels = all.length ? kind.panels(kind.pick(all, kind.limit), kind.choice) : [];
  grid.replaceChildren(...panels.map((panel, at) => figureOf(name, panel, at)));
  tellMore(name, all.length, panels.length);
}

function figureOf(name, panel, at) {
  const caption = element("figcaption", {}, element("strong", {}, panel.title));
  if (panel.caption) caption.append(" ", element("span", {}, panel.caption));
  const spec = panel.spec(), id = `${name}-${at + 1}`;
  const box = element("div", { class: "chart", id, role: "img", "aria-label": panel.description,
    style: `min-height:${spec.height}px` });
  queue.push({ box, spec: { ...spec, description: panel.description } });
  const save = saveButton(panel.title, id, () => ({ spec: panel.spec(), text: `${panel.title}. ${panel.description}` }));
  return element("figure", {}, caption, box, element("p", { class: "tools" }, save));
}

function tellMore(name, count, drawnPanels) {
  const kind = KINDS[name], line = document.querySelector(`[data-more="${name}"]`);
  const n = Math.min(count, kind.limit);
  line.replaceChildren();
  if (drawnPanels === 0) line.append(element("span", { role: "status" }, kind.none || "Nothing to draw."));
  else if (n < count) {
    line.append(element("span", {}, `${n} of ${plural(count, kind.noun, kind.nouns)} are drawn, evenly spread. `));
    const button = element("button", { type: "button" }, `Draw ${Math.min(kind.step, count - n)} more`);
    button.addEventListener("click", () => { kind.limit += kind.step; layOut(name); draw(); });
    line.append(button);
  }
}

function offerChoices(name) {
  const kind = KINDS[name], place = document.querySelector(`[data-choices="${name}"]`);
  if (!place) return;
  if (kind.offer) kind.offer(place, () => { layOut(name); draw(); });
  if (!kind.choices) return;
  place.setAttribute("role", "group");
  place.setAttribute("aria-label", "Scale");
  for (const [value, label] of kind.choices) {
    const button = element("button", { type: "button", "aria-pressed": String(value === kind.choice) }, label);
    button.addEventListener("click", () => {
      kind.choice = value;
      for (const other of place.children) other.setAttribute("aria-pressed", String(other === button));
      layOut(name);
      draw();
    });
    place.append(button);
  }
}

// Charts nearest to the visible part come first; the page can handle input between two charts.
async function draw() {
  turn += 1;
  queue = queue.filter(({ box }) => box.isConnected);
  if (isDrawing) return;
  isDrawing = true;
  delete document.documentElement.dataset.charts;
  while (queue.length > 0) {
    queue.sort((a, b) => distance(b.box) - distance(a.box));
    const { box, spec } = queue.pop();
    if (await drawChart(box, spec)) drawn += 1;
    await new Promise((resolve) => { setTimeout(resolve, 0); });
    queue = queue.filter(({ box }) => box.isConnected);
  }
  isDrawing = false;
  document.documentElement.dataset.charts = String(drawn);
}

function distance(box) {
  const { top, bottom } = box.getBoundingClientRect();
  return Math.max(top - innerHeight, -bottom, 0);
}
