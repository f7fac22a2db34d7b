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
  const about = tooltip(["model"], ["run", "run peak MB"], ["load", "load peak MB"], ["metric"]);
  return chart("memory", rowsHeight(models.length), { rows },
    { ...FAMILY_VALUES, models, about, domain: [0, largest * 1.05] });
}

function memoryPanels(numbers) {
  const found = numbers.map((platform) => ({ platform, rows: memoryRows(platform) }));
  const all = new Set(found.flatMap(({ rows }) => rows.map((row) => row.model)));
  const models = data.memory_order.map((number) => data.models[number].name).filter((name) => all.has(name));
  const largest = Math.max(1, ...found.flatMap(({ rows }) => rows.flatMap((row) => [row.run, row.load || 0])));
  return found.map(({ platform, rows }) => {
    const { title, memory_metric: metric } = data.platforms[platform];
    const counted = metric ? `counted as ${metric}` : "metric not recorded";
    return {
      title,
      caption: counted,
      description: `Peak memory on ${title}, ${counted}: ${plural(rows.length, "model")} `
        + span(rows.map((row) => row.run), "MB") + " while running.",
      spec: () => memoryChart(rows, models, largest),
    };
  });
}
