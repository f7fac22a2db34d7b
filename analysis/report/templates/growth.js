// How cost grows with batch, length and size of images, and the rate of sustained runs over time.
const GROWTH = { ms: "ms", per_s: "per second", mb: "peak MB" };

// A model that was not measured in the page's workload is its name, and no filter hides it.
const isGrowing = (model) => typeof model === "string" || shown.models.includes(model);
const growingName = (model) => typeof model === "string" ? model : data.models[model].name;

// Every model of both sections: each has one colour and one shape in all panels.
const GROWING = [...new Set([
  ...data.scaling.flatMap(({ rows }) => rows), ...data.sustained.flatMap(({ points }) => points),
].map(([model]) => growingName(model)))].sort();

// The models of some rows, for the legend, beside the colours of all.
function growingColours(rows) {
  const models = GROWING.filter((name) => rows.some((row) => row.model === name));
  return { models, growing: GROWING, scheme: schemeOf(GROWING), columns: 2, room: 160 };
}

function growthRows(number, field) {
  return data.scaling[number].rows
    .filter(([model]) => isGrowing(model))
    .map(([model, value, ms, per_s, mb]) => ({ model: growingName(model), value, ms, per_s, mb }))
    .filter((row) => row[field] > 0)
    .map((row) => ({ ...row, figure: row[field] }));
}

function growthPanels(numbers, field) {
  return numbers.map((number) => {
    const { title, axis, over, item, ends } = data.scaling[number], rows = growthRows(number, field);
    const unit = field === "per_s" ? `${item}s per second` : GROWTH[field];
    const ticks = [...new Set(rows.map((row) => row.value))].sort((a, b) => a - b);
    const figures = rows.map((row) => row.figure);
    const domain = [Math.min(...figures) * 0.7, Math.max(...figures) * 1.4];
    const about = tooltip(["model"], ["value", over.replace("_", " ")], ["ms"], ["per_s", `${item}s/s`], ["mb", "peak MB"]);
    return {
      title, caption: ends || `over ${over.replace("_", " ")}`,
      description: `${unit} over ${axis} on ${title}: ${plural(rows.length, "point")}, ${span(figures, unit)}. ${ends}`,
      spec: () => chart("scaling", 300, { rows }, { ...growingColours(rows), about, ticks, domain,
        across: `${axis}, log scale`, unit: `${unit}, log scale`, upTicks: logTicks(...domain) }),
    };
  });
}

function sustainedRows(number) {
  return data.sustained[number].points
    .filter(([model]) => isGrowing(model))
    .map(([model, repeat, second, rate]) => ({
      model: growingName(model), second, rate, line: `${growingName(model)}, repeat ${repeat}`,
    }));
}

function sustainedPanels(numbers) {
  return numbers.map((number) => {
    const { title, item } = data.sustained[number], rows = sustainedRows(number);
    const lines = new Set(rows.map((row) => row.line)).size;
    const about = tooltip(["line", "run"], ["second", "second"], ["rate", `${item}s per second`]);
    return {
      title, caption: plural(lines, "run"),
      description: `${item}s per second over time on ${title}: ${plural(lines, "run")}, `
        + `${span(rows.map((row) => row.rate), "per second")}.`,
      spec: () => chart("sustained", 260, { rows }, { ...growingColours(rows), about, unit: `${item}s per second` }),
    };
  });
}
