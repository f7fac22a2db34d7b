// What several charts share: the marks of families, ticks, and words for figures.
const ROW = 20;
const FAMILIES = Object.keys(data.families);
const FAMILY_VALUES = {
  families: FAMILIES,
  colours: FAMILIES.map((name) => data.families[name].colour),
  shapes: FAMILIES.map((name) => data.families[name].shape),
  legend: null,
};

function rowsHeight(count) {
  return ROW * Math.max(count, 1) + 40;
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

function span(values, unit) {
  const known = values.filter((value) => value !== null);
  if (known.length === 0) return "without a value";
  const low = Math.min(...known), high = Math.max(...known);
  return `from ${Number(low.toPrecision(4))} to ${Number(high.toPrecision(4))} ${unit}`;
}

function plural(count, noun, several = `${noun}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? noun : several}`;
}

// The colours of nominal values: the smallest scheme that has enough.
function schemeOf(values) {
  return values.length > 10 ? "tableau20" : "tableau10";
}
