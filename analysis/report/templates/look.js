// One style for all charts. `currentColor` takes colours from the style sheet: dark mode and
// print do not redraw.
const INK = "currentColor";
const AXIS = {
  labelColor: INK, titleColor: INK, titleFontWeight: "normal", titleOpacity: 0.75,
  labelFontSize: 11, titleFontSize: 11, gridColor: INK, gridOpacity: 0.1, domainColor: INK,
  domainOpacity: 0.25, tickColor: INK, tickOpacity: 0.25, labelLimit: 150,
};
const CONFIG = {
  font: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
  view: { stroke: null },
  axis: AXIS,
  axisY: { domain: false, ticks: false, labelPadding: 6 },
  text: { color: INK, fontSize: 10.5 },
  legend: { labelColor: INK, titleColor: INK, titleFontWeight: "normal" },
};
const ROW = 20;
const FAMILIES = Object.keys(data.families);
const familyColour = {
  field: "family", type: "nominal", legend: null,
  scale: { domain: FAMILIES, range: FAMILIES.map((name) => data.families[name].colour) },
};
const familyShape = {
  field: "family", type: "nominal", legend: null,
  scale: { domain: FAMILIES, range: FAMILIES.map((name) => data.families[name].shape) },
};

// A specification with its data and the common style; width follows the page.
function chart(height, datasets, layer, more = {}) {
  return {
    $schema: "https://vega.github.io/schema/vega-lite/v6.json",
    width: "container", height, background: "transparent", datasets, layer, config: CONFIG,
    autosize: { type: "fit", contains: "padding" }, ...more,
  };
}

function rowsHeight(count) {
  return ROW * Math.max(count, 1) + 40;
}

function rowAxis(names) {
  return { field: "model", type: "nominal", scale: { domain: names }, title: null };
}

// Round values between two limits above 0: powers of ten, or 1-3 or 1-2-5 when those are few.
function logTicks(low, high) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  let ticks = [];
  for (const steps of [[1], [1, 3], [1, 2, 5]]) {
    ticks = [];
    for (let power = first; power <= last; power += 1) {
      for (const step of steps) ticks.push(Number((step * 10 ** power).toPrecision(6)));
    }
    ticks = ticks.filter((tick) => low <= tick && tick <= high);
    if (ticks.length >= 3) break;
  }
  return ticks;
}

function tooltip(...fields) {
  return fields.map(([field, title]) => ({ field, title: title || field }));
}

function span(values, unit) {
  const known = values.filter((value) => value !== null);
  if (known.length === 0) return "without a value";
  const low = Math.min(...known), high = Math.max(...known);
  return `from ${Number(low.toPrecision(4))} to ${Number(high.toPrecision(4))} ${unit}`;
}

function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}
