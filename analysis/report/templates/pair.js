// One pair of platforms in full: its figures, and every model's latency on both.

// The platforms that the reader selected; null is not yet.
const picked = { s: null, t: null };

// Until the reader selects, the first pair that has a frontier, or a rank correlation.
function pairNow() {
  const numbers = comparedPlatforms(), first = frontierPairs()[0] || { s: numbers[0], t: numbers.at(-1) };
  const s = picked.s ?? first.s, t = picked.t ?? first.t;
  return s === undefined || t === undefined ? [] : [{ s, t }];
}

function offerPair(place, redraw) {
  const [now] = pairNow();
  for (const [side, label] of [["s", "Source of the pair"], ["t", "Target of the pair"]]) {
    const select = element("select", { "aria-label": label, "data-side": side }, ...platformOptions());
    if (now) select.value = String(now[side]);
    select.addEventListener("change", () => { picked[side] = Number(select.value); redraw(); });
    place.append(element("label", {}, `${label.split(" ")[0]} `, select));
  }
  const swap = element("button", { type: "button" }, "Swap");
  swap.addEventListener("click", () => {
    const [{ s, t }] = pairNow();
    Object.assign(picked, { s: t, t: s });
    redraw();
  });
  if (now) place.append(swap);
}

function platformOptions() {
  const tiers = new Map();
  data.platforms.forEach(({ tier, label }, number) => {
    if (!tiers.has(tier)) tiers.set(tier, element("optgroup", { label: tier || "no tier" }));
    tiers.get(tier).append(new Option(label, number));
  });
  return tiers.values();
}

function pairFigures(measure, { s, t }) {
  const pairs = data.pairs[measure];
  const at = pairs.source.findIndex((source, number) => (
    (source === s && pairs.target[number] === t) || (source === t && pairs.target[number] === s)));
  return at < 0 ? null : Object.fromEntries(Object.entries(pairs).map(([name, column]) => [name, column[at]]));
}

function rankFacts(measure, pair) {
  if (pair.s === pair.t) return [["", "Source and target are the same platform."]];
  const found = pairFigures(measure, pair);
  if (found === null) return [["", "This page does not compare this pair: `fleetrank report show transfer` compares all pairs."]];
  const fixed = (value) => value.toFixed(2);
  const { rho, low, high, ceiling } = found;
  if (rho === null) return [["rho", found.reason || "undefined"], ["models", String(found.n_models)]];
  return [
    ["rho", fixed(rho)],
    ["95 % interval", low === null ? "none below 9 models" : `${fixed(low)} to ${fixed(high)}`],
    ["with shuffled latencies", found.null_mean === null ? "none"
      : `mean ${fixed(found.null_mean)}, 95th percentile ${fixed(found.null_p95)}`],
    ["if only FLOPs transfer", residualText(found)],
    ["ceiling", ceiling === null ? "unknown: too few repeats, or unlike statistics"
      : `${fixed(ceiling)}${ceiling > 0 ? ` (rho is ${Math.round(100 * rho / ceiling)} % of it)` : ""}`],
    ["models", String(found.n_models)],
  ];
}

function frontierFacts(pair) {
  const found = data.frontiers.find((one) => one.s === pair.s && one.t === pair.t);
  if (!found) return [["", "This page has no frontier of this pair: `fleetrank report show pareto` lists all."]];
  return [
    ["precision", `${found.precision.toFixed(2)} (by chance ${found.chance.toFixed(2)})`],
    ["recall", found.recall.toFixed(2)], ["regret", regretText(found).replace(/^regret:? /, "")],
    ["models", String(found.n)],
  ];
}

function factList(groups) {
  return element("div", { class: "facts-of-pair" }, ...groups.map(([title, facts]) => (
    element("div", {}, element("h3", {}, title), facts[0][0] === "" ? element("p", { class: "note" }, facts[0][1])
      : element("dl", {}, ...facts.map(([name, value]) => (
        element("div", {}, element("dt", {}, name), element("dd", {}, value)))))))));
}

function pairRows({ s, t }) {
  return shown.models.map((number) => ({
    ...data.models[number], model: data.models[number].name, x: cell(s, number, "ms"), y: cell(t, number, "ms"),
  })).filter((row) => row.x > 0 && row.y > 0);
}

function pairChart(rows, pair) {
  const [across, up] = ["x", "y"].map((side) => {
    const values = rows.map((row) => row[side]);
    return [Math.min(...values) * 0.85, Math.max(...values) * (side === "x" ? 1.6 : 1.2)];
  });
  placeNames(rows, rows, (row) => [shareOf(row.x, across) * PLOT.width, (1 - shareOf(row.y, up)) * PLOT.height]);
  const [source, target] = [pair.s, pair.t].map((number) => shortName(data.platforms[number].label, 40));
  return chart("pair", 340, { rows }, { ...FAMILY_VALUES, across, up, acrossTicks: logTicks(...across),
    upTicks: logTicks(...up), source: `ms on ${source}, log scale`, target: `ms on ${target}`,
    about: tooltip(["model"], ["x", "ms on source"], ["y", "ms on target"]) });
}

function pairPanels([pair]) {
  for (const select of document.querySelectorAll("[data-side]")) select.value = String(pair[select.dataset.side]);
  const [source, target] = [pair.s, pair.t].map((number) => data.platforms[number].title);
  const title = `${source} \u2192 ${target}`, rows = pairRows(pair);
  const words = statisticsOf(pair.s, pair.t);
  const panels = [{ title, caption: `latencies: ${words}`, body: () => factList([
    ["Ranks by latency", rankFacts("latency", pair)], ["Ranks by FRM", rankFacts("frm", pair)],
    ["Frontier of accuracy and latency", frontierFacts(pair)]]) }];
  if (rows.length > 0) {
    const caption = `${plural(rows.length, "model")} that both measured`;
    panels.push({ title: "Latency on both", caption, spec: () => pairChart(rows, pair),
      description: `Latency on ${source} against latency on ${target}: ${caption}.` });
  }
  const frontier = data.frontiers.find((one) => one.s === pair.s && one.t === pair.t);
  if (frontier) panels.push({ ...frontierPanels([frontier])[0], title: "Frontier on the target", caption: "" });
  return panels;
}
