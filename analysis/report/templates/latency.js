// Latency: quantile strips of raw samples, process medians, and their median.

function latencyRows(platform, isRelative) {
  const cells = [], processes = [];
  for (const model of shown.models) {
    const ms = cell(platform, model, "ms");
    if (ms === null) continue;
    const { name, family } = data.models[model];
    const scale = (value) => (value === null || !isRelative ? value : value / ms);
    const low = cell(platform, model, "low_ms"), high = cell(platform, model, "high_ms");
    const row = {
      model: name, family, x: scale(ms), ms, p95: cell(platform, model, "p95_ms"),
      p99: cell(platform, model, "p99_ms"), statistic: statisticOf(platform), repeats: cell(platform, model, "n"),
      interval: low === null ? "none below 5 repeats" : `${low} to ${high} ms`,
    };
    const quantiles = cell(platform, model, "quantiles_ms") || [];
    quantiles.forEach((value, at) => { row["q" + at] = scale(value); });
    row.middle = quantiles.length ? `${quantiles[2]} to ${quantiles[4]} ms` : "no raw samples";
    cells.push(row);
    for (const value of cell(platform, model, "processes_ms") || []) {
      processes.push({ model: name, family, x: scale(value) });
    }
  }
  return { cells, processes, predicted: isRelative ? [] : predictedRows(platform) };
}

// Predicted values have no samples; relative to themselves they say nothing.
function predictedRows(platform) {
  const { p, m, ms, low_ms, high_ms } = data.predicted;
  return p.flatMap((number, at) => (number !== platform || !shown.models.includes(m[at]) ? [] : [{
    model: data.models[m[at]].name, family: data.models[m[at]].family, x: ms[at],
    low: low_ms[at], high: high_ms[at], kind: "predicted, not measured",
    interval: low_ms[at] === null ? "none: too few models or devices" : `${low_ms[at]} to ${high_ms[at]} ms`,
  }]));
}

function latencyDomain(panels, isRelative) {
  const values = panels.flatMap(({ rows }) => [
    ...rows.cells.flatMap((row) => [row.x, row.q0, row.q6]), ...rows.processes.map((row) => row.x),
    ...rows.predicted.map((row) => row.x),
  ]).filter((value) => value > 0);
  const low = values.reduce((a, b) => Math.min(a, b), Infinity);
  const high = values.reduce((a, b) => Math.max(a, b), 0);
  // One slow run must not compress the scale: values beyond it are drawn at the edge.
  return isRelative ? [Math.max(0.5, low - 0.03), Math.min(2, high + 0.03)] : [low * 0.9, high * 1.1];
}

function latencyChart(rows, models, domain, isRelative) {
  const x = (field) => ({
    field, type: "quantitative",
    scale: isRelative ? { domain, nice: false, zero: false, clamp: true }
      : { type: "log", domain, nice: false },
    axis: isRelative ? { format: ".0%", tickCount: 5 }
      : { values: logTicks(...domain), format: "~g", labelOverlap: true },
    title: isRelative ? "of the model's latency; beyond 50 or 200 % at the edge" : "ms per inference, log scale",
  });
  const about = tooltip(
    ["model"], ["ms"], ["statistic"], ["interval", "95 % interval"], ["middle", "middle half"],
    ["p95", "p95 ms"], ["p99", "p99 ms"], ["repeats"],
  );
  const predictedAbout = tooltip(["model"], ["kind"], ["x", "predicted ms"], ["interval", "90 % interval"]);
  return chart("latency", rowsHeight(models.length), rows,
    { ...FAMILY_VALUES, models, about, predictedAbout, low: x("low"), x: x("x"), q0: x("q0"), q1: x("q1"), q2: x("q2") });
}

function latencyPanels(numbers, choice) {
  const isRelative = choice === "relative";
  const found = numbers.map((platform) => ({ platform, rows: latencyRows(platform, isRelative) }));
  const domain = latencyDomain(found, isRelative);
  // All panels have the same rows, so that a reader can compare them.
  const all = new Set(found.flatMap(({ rows }) => [...rows.cells, ...rows.predicted].map((row) => row.model)));
  const models = shown.models.map((number) => data.models[number].name).filter((name) => all.has(name));
  return found.map(({ platform, rows }) => ({
    title: data.platforms[platform].title,
    caption: statisticOf(platform),
    description: `Latency on ${data.platforms[platform].title}, ${statisticOf(platform)}: ${plural(rows.cells.length, "model")} `
      + span(rows.cells.map((row) => row.ms), "ms") + ".",
    spec: () => latencyChart(rows, models, domain, isRelative),
  }));
}
