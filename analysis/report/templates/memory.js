// Peak memory: a symbol for the run, a ring for loading, joined by a thin line.
function memoryRows(platform) {
  return data.memory_order
    .filter((model) => shown.models.includes(model) && cell(platform, model, "run_mb") > 0)
    .map((model) => ({
      ...data.models[model], model: data.models[model].name,
      run: cell(platform, model, "run_mb"), load: cell(platform, model, "load_mb"),
      metric: data.platforms[platform].memory_metric || "not recorded",
    }));
}

function memoryChart(rows, models, largest) {
  const scale = { domain: [0, largest * 1.05], nice: false };
  const y = rowAxis(models);
  const about = tooltip(["model"], ["run", "run peak MB"], ["load", "load peak MB"], ["metric"]);
  const run = {
    field: "run", type: "quantitative", scale, axis: { tickCount: 4, labelOverlap: true },
    title: "MB over the baseline",
  };
  const load = { field: "load", type: "quantitative", scale };
  const from = { name: "rows" };
  return chart(rowsHeight(models.length), { rows }, [
    { data: from, mark: { type: "rule", opacity: 0.4 },
      encoding: { x: run, x2: { field: "load" }, y, color: familyColour } },
    { data: from, mark: { type: "point", size: 30, strokeWidth: 1.2 },
      encoding: { x: load, y, color: familyColour, tooltip: about } },
    { data: from, mark: { type: "point", filled: true, size: 52, opacity: 1 },
      encoding: { x: run, y, color: familyColour, shape: familyShape, tooltip: about } },
  ]);
}

function memoryPanels(numbers) {
  const found = numbers.map((platform) => ({ platform, rows: memoryRows(platform) }));
  const all = new Set(found.flatMap(({ rows }) => rows.map((row) => row.model)));
  const models = data.memory_order.map((number) => data.models[number].name).filter((name) => all.has(name));
  const largest = Math.max(1, ...found.flatMap(({ rows }) => rows.flatMap((row) => [row.run, row.load || 0])));
  return found.map(({ platform, rows }) => {
    const { label, memory_metric: metric } = data.platforms[platform];
    const counted = metric ? `counted as ${metric}` : "metric not recorded";
    return {
      title: label,
      caption: counted,
      description: `Peak memory on ${label}, ${counted}: ${plural(rows.length, "model")} `
        + span(rows.map((row) => row.run), "MB") + " while running.",
      spec: () => memoryChart(rows, models, largest),
    };
  });
}
