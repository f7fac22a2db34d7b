"use strict";
// The page's data, and the part that the filter shows.
const data = JSON.parse(document.getElementById("data").textContent);

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
const shown = { platforms: [], models: [], isAll: true, hidden: new Set() };

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
  shown.hidden = shown.isAll ? new Set() : hiddenWords();
}

// The words of Shown.tokens in shown.py: a row about any of these is hidden.
function hiddenWords() {
  const platforms = shown.platforms.map((number) => data.platforms[number]);
  const models = shown.models.map((number) => data.models[number]);
  const kept = new Set([
    ...shown.platforms.map((number) => "p" + number),
    ...shown.models.map((number) => "m" + number),
    ...platforms.flatMap((one) => ["t" + one.tier, "r" + one.runtime, "c" + one.precision]),
    ...platforms.map((one) => "d" + data.devices.indexOf(one.device)),
    ...models.map((one) => "f" + one.family),
  ]);
  const all = [
    "x",
    ...data.platforms.map((one, number) => "p" + number),
    ...data.models.map((one, number) => "m" + number),
    ...data.platforms.flatMap((one) => ["t" + one.tier, "r" + one.runtime, "c" + one.precision]),
    ...data.devices.map((one, number) => "d" + number),
    ...data.models.map((one) => "f" + one.family),
  ];
  return new Set(all.filter((word) => !kept.has(word)));
}

function isShown(about) {
  return shown.hidden.size === 0 || !about.split(" ").some((word) => shown.hidden.has(word));
}

// The cells of each platform, by model.
const cellsOf = data.platforms.map(() => new Map());
data.cells.p.forEach((platform, number) => cellsOf[platform].set(data.cells.m[number], number));

function cell(platform, model, name) {
  const number = cellsOf[platform].get(model);
  return number === undefined ? null : data.cells[name][number];
}
