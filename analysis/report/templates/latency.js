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
      p99: cell(platform, model, "p99_ms"), repeats: cell(platform, model, "n"),
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
  return { cells, processes };
}

function latencyDomain(panels, isRelative) {
  const values = panels.flatMap(({ rows }) => [
    ...rows.cells.flatMap((row) => [row.x, row.q0, row.q6]), ...rows.processes.map((row) => row.x),
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
    title: isRelative ? "of the model's median; beyond 50 or 200 % at the edge" : "ms per inference, log scale",
  });
  const about = tooltip(
    ["model"], ["ms", "median ms"], ["interval", "95 % interval"], ["middle", "middle half"],
    ["p95", "p95 ms"], ["p99", "p99 ms"], ["repeats"],
  );
  return chart("latency", rowsHeight(models.length), rows,
    { ...FAMILY_VALUES, models, about, x: x("x"), q0: x("q0"), q1: x("q1"), q2: x("q2") });
}

function latencyPanels(numbers, choice) {
  const isRelative = choice === "relative";
  const found = numbers.map((platform) => ({ platform, rows: latencyRows(platform, isRelative) }));
  const domain = latencyDomain(found, isRelative);
  // All panels have the same rows, so that a reader can compare them.
  const all = new Set(found.flatMap(({ rows }) => rows.cells.map((row) => row.model)));
  const models = shown.models.map((number) => data.models[number].name).filter((name) => all.has(name));
  return found.map(({ platform, rows }) => ({
    title: data.platforms[platform].label,
    caption: "",
    description: `Latency on ${data.platforms[platform].label}: ${plural(rows.cells.length, "model")} `
      + span(rows.cells.map((row) => row.ms), "ms") + ".",
    spec: () => latencyChart(rows, models, domain, isRelative),
  }));
}
