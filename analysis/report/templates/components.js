// Where the time goes: a bar for each component, beside each other for the platforms.
const PLATFORM_COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"];

function componentRows(model, kind) {
  const { m, p, name, share, share_low: low, share_high: high, about_ms: ms } = data.components[kind];
  return m.map((one, at) => ({ number: one, place: p[at], component: name[at], percent: 100 * share[at],
    low: low[at] === null ? null : 100 * low[at], high: high[at] === null ? null : 100 * high[at], ms: ms[at] }))
    .filter((row) => row.number === model && shown.platforms.includes(row.place))
    .map((row) => ({ ...row, platform: data.platforms[row.place].title }));
}

function profiledModels() {
  return shown.models.filter((model) => componentRows(model, "components").length > 0);
}

function componentPanels(numbers, kind) {
  const about = tooltip(["component"], ["platform"], ["percent", "% of the time"], ["low", "interval from"],
    ["high", "to"], ["ms", "about ms"]);
  return numbers.map((model) => {
    const every = componentRows(model, kind), all = [...new Set(every.map((row) => row.platform))].sort();
    const platforms = all.slice(0, PLATFORM_COLOURS.length);
    const rows = every.filter((row) => platforms.includes(row.platform));
    const largest = new Map();
    for (const row of rows) largest.set(row.component, Math.max(row.percent, largest.get(row.component) || 0));
    // What is summed up comes last, whatever its size.
    const rest = (name) => Number(name === "(all smaller ones)");
    const components = [...largest.keys()].sort((a, b) => rest(a) - rest(b) || largest.get(b) - largest.get(a));
    const { name } = data.models[model];
    const hidden = all.length - platforms.length;
    const height = 60 + 20 * platforms.length + components.length * (8 + 9 * platforms.length);
    return { title: name, caption: hidden > 0 ? `${hidden} more platforms in the table` : "",
      spec: () => chart("components", height, { rows },
        { about, components, platforms, colours: PLATFORM_COLOURS.slice(0, platforms.length) }),
      description: `Shares of ${plural(components.length, "component")} of ${name} on ${plural(platforms.length, "platform")}; `
        + `the largest is ${components[0]} with ${largest.get(components[0])?.toPrecision(3)} %.` };
  });
}
