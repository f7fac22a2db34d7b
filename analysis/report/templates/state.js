"use strict";
// The page's data, and the part that the filter shows.
const data = JSON.parse(document.getElementById("data").textContent);
const specs = data.specs;

const DIMENSIONS = [
  { name: "tier", label: "Tier", of: "platforms" },
  { name: "device", label: "Device", of: "platforms" },
  { name: "runtime", label: "Runtime", of: "platforms" },
  { name: "precision", label: "Precision", of: "platforms" },
  { name: "family", label: "Family", of: "models" },
  { name: "model", label: "Model", of: "models" },
];
for (const dimension of DIMENSIONS) {
  const key = dimension.name === "model" ? "name" : dimension.name;
  dimension.value = (item) => item[key];
  const found = data[dimension.of].map(dimension.value).filter((value) => value !== null);
  dimension.options = Array.from(new Set(found));
  // The data has a meaningful order; names are sorted, because a reader looks them up.
  if (["device", "model"].includes(dimension.name)) dimension.options.sort();
}

// An empty set selects all.
const chosen = new Map(DIMENSIONS.map((dimension) => [dimension.name, new Set()]));
const shown = { platforms: [], models: [], isAll: true, hidden: [] };

function numbersOf(kind) {
  const asked = DIMENSIONS.filter((one) => one.of === kind && chosen.get(one.name).size > 0);
  return data[kind]
    .map((item, number) => [item, number])
    .filter(([item]) => asked.every((one) => chosen.get(one.name).has(one.value(item))))
    .map(([, number]) => number);
}

function lookAgain() {
  shown.platforms = numbersOf("platforms");
  shown.models = numbersOf("models");
  shown.isAll = DIMENSIONS.every((one) => chosen.get(one.name).size === 0);
  shown.hidden = hiddenSubjects();
}

// By kind of subject, what the filter hides. The kinds are the `data-` attributes of a row
// (`SUBJECTS` in shown.py): a platform is its number, anything else its name.
function hiddenSubjects() {
  const hidden = { platform: data.platforms.map((one, number) => String(number))
    .filter((number) => !shown.platforms.includes(Number(number))) };
  for (const { name, of, value, options } of DIMENSIONS) {
    const kept = new Set(shown[of].map((number) => value(data[of][number])));
    hidden[name] = options.filter((option) => !kept.has(option));
  }
  return Object.entries(hidden).filter(([, values]) => values.length > 0)
    .map(([kind, values]) => [kind, new Set(values)]);
}

// A row has one model and one device, whose names may contain spaces; of the rest up to two.
function isShown(about) {
  return shown.hidden.every(([kind, hidden]) => {
    const text = about[kind];
    if (!text) return true;
    return ["model", "device"].includes(kind) ? !hidden.has(text)
      : !text.split(" ").some((word) => hidden.has(word));
  });
}

// The cells of each platform, by model.
const cellsOf = data.platforms.map(() => new Map());
data.cells.p.forEach((platform, number) => cellsOf[platform].set(data.cells.m[number], number));

function statisticOf(platform) {
  return data.platforms[platform].statistic || "statistic not stated";
}

// What the latencies of two platforms are: "median", or both words if they differ.
function statisticsOf(source, target) {
  const words = [source, target].map(statisticOf);
  return words[0] === words[1] ? words[0] : words.join(" / ");
}

function cell(platform, model, name) {
  const number = cellsOf[platform].get(model);
  return number === undefined ? null : data.cells[name][number];
}
