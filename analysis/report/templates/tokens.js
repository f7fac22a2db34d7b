// Language models: prompts against steps, tokens per second, memory by context.

// Of one panel, in pixels: narrower and higher than the chart of a frontier.
const PHASE_PLOT = { width: 270, height: 285, letter: 6.4, line: 12, room: 0 };

// The two workloads that the reader selected; at first a prompt and a step of the same length.
const phase = { x: null, y: null };

function tokenRows(platform, workload, field) {
  const found = new Map(), { w, p, m } = data.tokens;
  w.forEach((one, at) => {
    const value = data.tokens[field][at];
    if (one === workload && p[at] === platform && shown.models.includes(m[at]) && value > 0) found.set(m[at], value);
  });
  return found;
}

function phaseNow() {
  const names = data.tokens.workloads, length = (name) => name.split("@")[1];
  const steps = names.filter((name) => name.startsWith("decode@")).reverse();
  const prompts = names.filter((name) => name.startsWith("prefill@")).reverse();
  const step = steps.find((name) => prompts.some((one) => length(one) === length(name))) || steps[0] || names.at(-1);
  const prompt = prompts.find((name) => length(name) === length(step)) || prompts[0] || names[0];
  return { x: phase.x ?? names.indexOf(prompt), y: phase.y ?? names.indexOf(step) };
}

function offerPhases(place) {
  for (const [side, label] of [["x", "First workload"], ["y", "Second workload"]]) {
    const select = element("select", { "aria-label": label, "data-phase": side },
      ...data.tokens.workloads.map((name, number) => new Option(name, number)));
    select.value = String(phaseNow()[side]);
    select.addEventListener("change", () => {
      phase[side] = Number(select.value);
      for (const other of document.querySelectorAll(`[data-phase="${side}"]`)) other.value = select.value;
      // Both charts show the same two workloads.
      for (const name of ["phases", "rates"]) layOut(name);
      draw();
    });
    place.append(element("label", {}, `${label} `, select));
  }
}

function phaseRows(platform, field) {
  const now = phaseNow(), [x, y] = [now.x, now.y].map((workload) => tokenRows(platform, workload, field));
  return shown.models.filter((model) => x.has(model) || y.has(model)).map((model) => ({
    ...data.models[model], model: data.models[model].name, x: x.get(model) ?? null, y: y.get(model) ?? null }));
}

function bothMeasured(platform) {
  return phaseRows(platform, "ms").filter((row) => row.x !== null && row.y !== null);
}

function phaseNames() {
  const now = phaseNow();
  return [now.x, now.y].map((number) => data.tokens.workloads[number]);
}

function phaseChart(rows) {
  const [first, second] = phaseNames();
  const [across, up] = ["x", "y"].map((side) => {
    const values = rows.map((row) => row[side]);
    return [Math.min(...values) * 0.7, Math.max(...values) * (side === "x" ? 3 : 1.4)];
  });
  const at = (row) => [shareOf(row.x, across) * PHASE_PLOT.width, (1 - shareOf(row.y, up)) * PHASE_PLOT.height];
  placeNames(rows, rows, at, PHASE_PLOT);
  return chart("pair", 340, { rows }, { ...FAMILY_VALUES, across, up, acrossTicks: logTicks(...across),
    upTicks: logTicks(...up), source: `ms, ${first}, log scale`, target: `ms, ${second}, log scale`,
    about: tooltip(["model"], ["x", `ms, ${first}`], ["y", `ms, ${second}`]) });
}

function phasePanels(numbers) {
  const [first, second] = phaseNames();
  return numbers.map((platform) => {
    const rows = bothMeasured(platform), { title } = data.platforms[platform];
    const caption = plural(rows.length, "model");
    return { title, caption, spec: () => phaseChart(rows),
      description: `Latency of ${first} against latency of ${second} on ${title}: ${caption}.` };
  });
}

function ratePanels(numbers) {
  const [first, second] = phaseNames();
  const found = numbers.map((platform) => ({ platform, rows: phaseRows(platform, "per_s") }));
  const every = found.flatMap(({ rows }) => rows.flatMap((row) => [row.x, row.y])).filter((value) => value > 0);
  const domain = [Math.min(...every) * 0.7, Math.max(...every) * 1.4];
  return found.map(({ platform, rows }) => {
    const { title } = data.platforms[platform], models = rows.map((row) => row.model);
    const about = tooltip(["model"], ["x", `tokens/s, ${first}`], ["y", `tokens/s, ${second}`]);
    return { title, caption: `ring ${first}, symbol ${second}`,
      spec: () => chart("rates", rowsHeight(models.length), { rows },
        { ...FAMILY_VALUES, models, about, domain, ticks: logTicks(...domain) }),
      description: `Tokens per second on ${title}: ${plural(rows.length, "model")}, ${first} and ${second}.` };
  });
}

function contextRows(platform) {
  const { w, p, m, mb, slots, workloads } = data.tokens;
  return w.map((workload, at) => ({ workload: workloads[workload], kind: workloads[workload].split("@")[0],
    slots: slots[workload], mb: mb[at], place: p[at], number: m[at] }))
    .filter((row) => row.place === platform && row.slots !== null && row.mb > 0 && shown.models.includes(row.number))
    .map((row) => ({ ...data.models[row.number], ...row, model: data.models[row.number].name,
      line: `${data.models[row.number].name} ${row.kind}` }));
}

function contextPanels(numbers) {
  const about = tooltip(["model"], ["workload"], ["slots", "slots of the cache"], ["mb", "peak MB"]);
  return numbers.map((platform) => {
    const rows = contextRows(platform), { title, memory_metric: metric } = data.platforms[platform];
    const ticks = [...new Set(rows.map((row) => row.slots))].sort((a, b) => a - b);
    const domain = [Math.min(...rows.map((row) => row.mb)) * 0.7, Math.max(...rows.map((row) => row.mb)) * 1.4];
    return { title, caption: metric ? `counted as ${metric}` : "metric not recorded",
      spec: () => chart("contexts", 300, { rows }, { ...FAMILY_VALUES, about, ticks, domain, upTicks: logTicks(...domain) }),
      description: `Peak memory by slots of the cache on ${title}: ${plural(rows.length, "value")}.` };
  });
}
