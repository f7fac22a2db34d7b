// The latency of models over sweeps, without what all models of a platform share: the host.
function historyRows(number) {
  return data.history[number].points
    .filter(([model]) => model === "host" || shown.models.includes(model))
    .map(([model, time, ratio, moved]) => ({ time, ratio, moved, moment: time.slice(0, 10),
      line: model === "host" ? "host" : data.models[model].name }));
}

function historyPanels(numbers) {
  const about = tooltip(["line", "model"], ["ratio", "over its median"], ["moment", "sweep"], ["moved", "step of"]);
  return numbers.map((number) => {
    const all = historyRows(number), host = all.filter((row) => row.line === "host");
    const rows = all.filter((row) => row.line !== "host"), models = [...new Set(rows.map((row) => row.line))];
    const steps = all.filter((row) => row.moved !== null);
    return {
      title: data.platforms[data.history[number].platform].title, caption: plural(steps.length, "step"),
      description: `Latency over sweeps: ${plural(models.length, "model")}, ${plural(steps.length, "step")}, `
        + `${span(all.map((row) => row.ratio), "times the median")}.`,
      spec: () => chart("history", 240, { rows, host, steps }, { about, models, scheme: schemeOf(models) }),
    };
  });
}
