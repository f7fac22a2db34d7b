// The answer for two models, and all models from one platform to another. Everything is computed from
// the latencies in the page: `margin`, `reach` and the rules of an order are those of `faster`.
const fleet = data.fleet;
const MANY = 200;
const OPEN_ROWS = 20;
const FIRST = fleet ? fleet.listed : [];
const MEASURED = FIRST.slice(1);
// What the reader asks; null fleets have nothing to ask.
const question = fleet && { a: fleet.a, b: fleet.b, here: fleet.here };
const way = fleet && { source: fleet.here, target: fleet.target };

// The ratio of two models on a platform, and whether `a` is the faster one there; null without both.
function ratioOn(platform, a, b) {
  const found = fleet.runs[platform] ? evidenceOf(fleet.runs[platform], a, b) : figuresOn(platform, a, b);
  if (!found || !(found.x > 0 && found.y > 0)) return null;
  const { x, y, n, m, error } = found, log = Math.log(y / x), margin = Math.log1p(fleet.margin);
  const least = error ?? Math.max(margin, Math.log1p(fleet.single)), low = log - least, high = log + least;
  const order = error !== null && low > -margin && high < margin ? "equal"
    : low > 0 ? "kept" : high < 0 ? "reversed" : "undecided";
  return { order, ratio: Math.exp(log), n, m, low: error === null ? null : Math.exp(low), high: error === null ? null : Math.exp(high) };
}

function figuresOn(platform, a, b) {
  const reach = fleet.reach[platform], [r, s] = [a, b].map((model) => Array.isArray(reach) ? reach[model] : reach);
  const [x, y] = [a, b].map((model) => fleet.ms[platform][model]), [n, m] = [a, b].map((model) => fleet.n[platform][model]);
  return { x, y, n, m, error: r === null || s === null ? null : Math.hypot(r, s) };
}

// The best evidence of two models: in turns, in one sweep, the steadier, the newer; else two sessions.
function evidenceOf({ ms, reach, n, turns, between }, a, b) {
  const sweepsOf = (...models) => [...ms.keys()].filter((at) => models.every((model) => ms[at][model] !== null));
  const inTurns = (at) => turns[at][a] && turns[at][b], reachOf = (at) => Math.hypot(reach[at][a], reach[at][b]);
  const [best] = sweepsOf(a, b).sort((s, t) => inTurns(t) - inTurns(s) || reachOf(s) - reachOf(t) || t - s);
  const [s, t] = best === undefined ? [sweepsOf(a).pop(), sweepsOf(b).pop()] : [best, best];
  if (s === undefined || t === undefined) return null;
  const parts = [reach[s][a], reach[t][b]], isOne = s === t;
  const error = isOne && parts.includes(null) ? null : Math.hypot(...parts.map((part) => part ?? 0), isOne ? 0 : between);
  return { x: ms[s][a], y: ms[t][b], n: n[s][a], m: n[t][b], error };
}

// What the platform where the question is asked shows; `a` is the faster one there.
function orderHere({ low, high, ratio }) {
  if (low === null) return ratio > 1 + Math.max(fleet.margin, fleet.single) ? "kept" : "undecided";
  if (low > 1 / (1 + fleet.margin) && high < 1 + fleet.margin) return "equal";
  return low > 1 ? "kept" : "undecided";
}

function rowsFor(a, b, here) {
  const words = orderHere(ratioOn(here, a, b)) === "kept" ? {} : WITHOUT_HERE;
  return fleet.platforms.flatMap(({ label, batch }, at) => {
    const isHere = ([model, where]) => where === at && [a, b].includes(model);
    const found = ratioOn(at, a, b), doubts = fleet.doubts.filter(isHere), unlike = fleet.unlike.filter(isHere);
    if (batch !== fleet.platforms[here].batch) return [];
    if (doubts.length) return [{ label, order: "doubtful", detail: `left out: ${doubts[0][2]}` }];
    if (!found) return [];
    if (unlike.length) return [{ label, at, ...found, order: found.ratio > 1 ? "kept?" : "reversed?", detail: `unlike the others: ${unlike[0][2]}` }];
    return [{ label, at, ...found, order: at === here ? "here" : words[found.order] ?? found.order }];
  });
}

function times(row) {
  const interval = row.low === null ? "one value each, no interval"
    : `${row.low.toFixed(2)} to ${row.high.toFixed(2)}, ${row.n === row.m ? plural(row.n, "process", "processes") : `${row.n} and ${row.m} processes`}`;
  return `${row.ratio.toFixed(2)} times as fast as ${fleet.models[question.b]} here (${interval}; ${row.label})`;
}

// A device has the first of these orders that one of its settings has.
const OF_DEVICE = fleet ? fleet.of_device : [];
// Without an order here there is none that could be kept.
const WITHOUT_HERE = fleet ? fleet.without_here : {};

function byDevice(rows, isHere) {
  const own = fleet.platforms[question.here].device, found = new Map();
  for (const row of rows.filter(({ order }) => MEASURED.includes(order))) {
    const { device } = fleet.platforms[row.at];
    if ((device === own) === isHere) found.set(device, [...(found.get(device) ?? []), row]);
  }
  const orderOf = (has) => (has("kept") && has("reversed")) || (has("a first") && has("b first")) ? "mixed" : OF_DEVICE.find(has);
  return [...found].map(([device, some]) => ({ device, rows: some, order: orderOf((one) => some.some(({ order }) => order === one)) }));
}

function verdictOf(rows) {
  const here = rows.find((row) => row.order === "here"), said = `${fleet.models[question.a]} is ${times(here)}`;
  const measured = byDevice(rows, false), count = (order) => measured.filter((one) => one.order === order).length;
  const [kept, reversed, mixed] = ["kept", "reversed", "mixed"].map(count), devices = plural(measured.length, "other device");
  const shown = orderHere(here);
  if (shown === "equal") return `Equal here within ${Math.round(100 * fleet.margin)} %: ${said}.`;
  if (shown === "undecided") return `Undecided here: ${said}.`;
  if (measured.length === 0) return `Not known elsewhere: ${said}; no other device measured both.`;
  if (mixed && kept + reversed === 0) return `It depends: ${said}; on ${mixed} of ${devices} the order changes with the settings.`;
  if (kept + reversed === 0) return `Not shown elsewhere: ${said}; of ${devices}, none shows a difference.`;
  const most = Math.max(kept, reversed), isKept = kept >= reversed;
  const some = isKept ? (reversed + mixed ? "Not everywhere" : "Not shown everywhere") : "Mostly not";
  const word = most >= 0.9 * measured.length ? (isKept ? "Yes" : "No") : some;
  return `${word}: ${said}, and ${isKept ? "also faster" : "slower"} on ${most} of ${devices}${conditionsOf(here, measured.flatMap((one) => one.rows))}.`;
}

// In which conditions nearly all of some platforms differ from here.
function conditionsOf(here, others) {
  const [own, ...words] = [here, ...others].map(({ at }) => fleet.platforms[at].conditions);
  const theirs = own.map((word, i) => words.map((one) => one[i]).filter((one) => one !== word));
  const unlike = [...own.keys()].filter((i) => theirs[i].length >= 0.9 * others.length);
  return unlike.length === 0 ? ""
    : ` (${unlike.map((i) => [...new Set(theirs[i])].sort().join(" or ")).join(", ")}; here ${unlike.map((i) => own[i]).join(", ")})`;
}

function wordOf(order) {
  const first = { "a first": question.a, "b first": question.b }[order];
  return first === undefined ? order : `${fleet.models[first]} is faster`;
}

function sentencesOf(rows) {
  const countsOf = (devices) => [...MEASURED, "mixed"].map((order) => [order, devices.filter((one) => one.order === order).length])
    .filter(([, n]) => n).map(([order, n]) => `${wordOf(order)} on ${n}`).join(", ");
  const counts = countsOf(byDevice(rows, false)), own = byDevice(rows, true).flatMap((one) => one.rows);
  const n = own.filter(({ order }) => order === "kept").length;
  const settings = own.length === 1 ? "the other setting" : `all ${own.length} other settings`;
  return [own.length > 0 && (n === own.length ? `The same in ${settings} of this device.` : `In ${plural(own.length, "other setting")} of this device: kept in ${n}.`),
    counts && `By device: ${counts}.`, "For platforms that did not measure both, and for shares of users: "
    + `fleetrank faster ${fleet.models[question.a]} ${fleet.models[question.b]}`].filter(Boolean);
}

// The faster model here is A; the pair of the page has its sentences from the analysis.
function showAnswer() {
  const isDoubted = fleet.unlike.some(([model, at]) => at === question.here && [question.a, question.b].includes(model));
  const here = isDoubted ? null : ratioOn(question.here, question.a, question.b);
  if (here && here.ratio < 1) Object.assign(question, { a: question.b, b: question.a });
  const isFirst = fleet.main && ["a", "b", "here"].every((name) => question[name] === fleet[name]);
  const rows = isFirst ? fleet.main.rows : here ? rowsFor(question.a, question.b, question.here) : [];
  const [a, b] = [question.a, question.b].map((model) => fleet.models[model]);
  const missing = a === b ? "Pick two models." : `${fleet.platforms[question.here].label} ${isDoubted ? "has a figure that is unlike the others: measure it again" : "did not measure both"}.`;
  const [verdict, ...sentences] = isFirst ? fleet.main.sentences : here && a !== b ? [verdictOf(rows), ...sentencesOf(rows)] : [missing];
  document.getElementById("verdict").textContent = verdict;
  const place = document.getElementById("orders");
  place.replaceChildren();
  // The drawing comes first: it has what the sentences list.
  if (rows.length > 0 && a !== b) drawOrders(place, rows, a, b);
  place.append(...sentences.map((text) => element("p", { class: "note" }, text)));
}

function drawOrders(place, rows, a, b) {
  const listed = [...rows].sort((x, y) => placeOf(x) - placeOf(y) || (x.ratio ?? 1) - (y.ratio ?? 1));
  const reach = reachOf(listed);
  place.append(ordersTable(listed.slice(0, OPEN_ROWS), a, b, reach));
  if (listed.length > OPEN_ROWS) {
    place.append(element("details", {}, element("summary", {}, `${listed.length - OPEN_ROWS} more platforms`),
      ordersTable(listed.slice(OPEN_ROWS), a, b, reach)));
  }
  const text = document.getElementById("verdict").textContent;
  place.append(element("p", { class: "tools" }, saveButton("the answer", "answer", () => (
    { spec: ordersChart(listed, reach, a, b), text }))));
}

const ORDER_LOOKS = { here: ["#000000", "diamond"], kept: ["#0072B2", "circle"], "a first": ["#0072B2", "circle"],
  reversed: ["#D55E00", "triangle-up"], "b first": ["#D55E00", "triangle-up"] };

// The same rows as one chart, for a file.
function ordersChart(listed, reach, a, b) {
  const shown = listed.filter(({ ratio }) => ratio > 0), kinds = [...new Set(shown.map(({ order }) => order))];
  const [colours, shapes] = [0, 1].map((at) => kinds.map((kind) => (ORDER_LOOKS[kind] ?? ["#8a919c", "square"])[at]));
  const margin = 1 + fleet.margin, end = Math.exp(reach);
  const rows = shown.map(({ label, order, ratio, low, high }) => (
    { label, low, high, value: ratio, from: 1 / margin, to: margin, kind: wordOf(order) }));
  return chart("intervals", 16 * shown.length + 75, { rows }, { about: null,
    kinds: kinds.map(wordOf), colours, shapes, room: 300, legend: { orient: "bottom", title: null, columns: 6 },
    title: [a, `times as fast as ${b}`], scale: "log", domain: [1 / end, end], ticks: logTicks(1 / end, end) });
}

function placeOf({ order }) {
  return FIRST.includes(order) ? FIRST.indexOf(order) : FIRST.length;
}

// Half of the axis, as a logarithm: every ratio that is neither doubtful nor very large.
function reachOf(rows) {
  const ends = rows.filter(({ order }) => order !== "doubtful").flatMap(({ ratio, low, high }) => [ratio, low, high]);
  return 1.05 * Math.min(Math.max(Math.log(1.25), ...ends.filter((end) => end > 0).map((end) => Math.abs(Math.log(end)))), Math.log(8));
}

function ordersTable(rows, a, b, reach) {
  const at = (log) => 50 + 50 * Math.min(Math.max(log / reach, -1), 1), end = Math.exp(reach).toPrecision(2);
  const mark = (kind, style) => element("i", { class: kind, style });
  const margin = Math.log1p(fleet.margin);
  const body = rows.map((row) => {
    const [device, ...rest] = row.label.split(", "), axis = element("div", { class: "axis", "aria-hidden": "true" });
    axis.append(mark("band", `left:${at(-margin)}%;width:${at(margin) - at(-margin)}%`));
    if (row.low > 0) axis.append(mark("range", `left:${at(Math.log(row.low))}%;width:${at(Math.log(row.high)) - at(Math.log(row.low))}%`));
    if (row.ratio > 0) {
      const place = at(Math.log(row.ratio));
      axis.append(mark(place > 0 && place < 100 ? "dot" : "dot beyond", `left:${place}%`));
    }
    const detail = row.detail || (row.low > 0 ? `${row.low.toFixed(2)} to ${row.high.toFixed(2)}` : "");
    return element("tr", { class: row.order.replace(" ", "-").replace("?", "") },
      element("th", { scope: "row" }, device, " ", element("small", {}, rest.join(", "))), element("td", {}, axis),
      element("td", {}, row.ratio > 0 ? `${row.ratio.toFixed(2)} ` : "", element("small", {}, detail)), element("td", {}, row.order));
  });
  const scale = element("div", {}, ...[`${b} ${end}\u00d7 as fast`, "equal", `${a} ${end}\u00d7 as fast`].map((text) => element("span", {}, text)));
  const heads = ["Platform", scale, "Times as fast", "Order"].map((head) => element("th", { scope: "col" }, head));
  return element("table", { class: "orders" },
    element("caption", { class: "visually-hidden" }, `${a}: times as fast as ${b}, by platform`),
    element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...body));
}

// A list to pick from; of very many names the reader types a part.
function picker(label, names, value, pick) {
  if (names.length <= MANY) {
    const select = element("select", { "aria-label": label }, ...names.map((name, at) => new Option(name, at)));
    select.value = String(value);
    select.addEventListener("change", () => pick(Number(select.value)));
    return select;
  }
  const input = element("input", { "aria-label": label, list: `${label}-names`, type: "search" });
  input.value = names[value];
  input.addEventListener("change", () => { if (names.includes(input.value)) pick(names.indexOf(input.value)); });
  return element("span", {}, input, element("datalist", { id: `${label}-names` }, ...names.map((name) => new Option(name))));
}

function offerAnswer() {
  if (!fleet) return;
  const labels = fleet.platforms.map(({ label }) => label);
  const ask = (label, names, name) => picker(label, names, question[name], (value) => { question[name] = value; showAnswer(); });
  document.getElementById("question").append(ask("Model A", fleet.models, "a"), " against ", ask("Model B", fleet.models, "b"),
    " here: ", ask("Here", labels, "here"));
  showAnswer();
  const place = document.getElementById("way");
  if (!place) return;
  const go = (label, name) => picker(label, labels, way[name], (value) => { way[name] = value; showSwaps(); });
  place.append(go("Source", "source"), " \u2192 ", go("Target", "target"));
  showSwaps();
}

// Every model on both platforms in the order of the source, with those that it changes places with.
function showSwaps() {
  const { source, target } = way, place = document.getElementById("swaps-table");
  const both = fleet.models.map((_, at) => at).filter((at) => fleet.ms[source][at] > 0 && fleet.ms[target][at] > 0);
  const listed = (where) => [...both].sort((x, y) => fleet.ms[where][x] - fleet.ms[where][y]);
  const rows = listed(source), ranks = new Map(listed(target).map((model, at) => [model, at + 1]));
  const counts = { kept: 0, reversed: 0, equal: 0, undecided: 0 }, swaps = new Map(rows.map((model) => [model, []]));
  rows.forEach((a, at) => rows.slice(at + 1).forEach((b) => {
    const [here, there] = [source, target].map((where) => ratioOn(where, a, b).order);
    const order = here === "kept" ? there : here;
    counts[order] += 1;
    if (order === "reversed") [[a, b], [b, a]].forEach(([one, other]) => swaps.get(one).push(fleet.models[other]));
  }));
  const n = (rows.length * (rows.length - 1)) / 2;
  const said = Object.entries(counts).filter(([, count]) => count).map(([order, count]) => `${count.toLocaleString("en")} ${order}`);
  place.replaceChildren(element("p", { role: "status" }, n ? `Of ${plural(n, "pair")} of models: ${said.join(", ")}.` : "Fewer than two models were measured on both."));
  const shownRows = rows.filter((model, at) => at < PART || swaps.get(model).length).slice(0, 2 * PART);
  const body = shownRows.map((model) => element("tr", swaps.get(model).length ? { class: "reversed" } : {},
    ...[fleet.models[model], fleet.ms[source][model].toPrecision(4), fleet.ms[target][model].toPrecision(4), `${rows.indexOf(model) + 1} \u2192 ${ranks.get(model)}`].map((value, at) => (
      element(at ? "td" : "th", at ? { class: "number" } : { scope: "row" }, value))),
    element("td", {}, fewOf(swaps.get(model)))));
  if (body.length) place.append(element("div", { class: "scroll", role: "group", tabindex: "0", "aria-label": "Swaps" }, element("table", {},
    element("caption", {}, `${fleet.platforms[source].label} \u2192 ${fleet.platforms[target].label}`),
    element("thead", {}, element("tr", {}, ...["model", "ms, source", "ms, target", "place", "changes places with"].map((head, at) => (
      element("th", at && at < 4 ? { scope: "col", class: "number" } : { scope: "col" }, head))))),
    element("tbody", {}, ...body))));
}

function fewOf(names) {
  return names.length > 4 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
}
