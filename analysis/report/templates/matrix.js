// How far ranks carry from each platform to each other.
const MAX_SIDE = 24;
const MEASURES = [
  ["latency", "Latency", "Spearman's rho of the models' ranks"],
  ["frm", "FRM", "to be read against its null, shown on hover"],
];

// At most so many of a list, evenly spread: tiers stand one after the other in it.
function spread(list, most) {
  if (list.length <= most) return list;
  return Array.from({ length: most }, (_, at) => list[Math.floor((at * list.length) / most)]);
}

// Those with a figure: a platform of too few models has none with any other.
function comparedPlatforms() {
  const { source, target, rho } = data.pairs.latency;
  const known = new Set(rho.flatMap((value, at) => (value === null ? [] : [source[at], target[at]])));
  return shown.platforms.filter((number) => known.has(number));
}

function matrixRows(measure, sides) {
  const on = new Set(sides), pairs = data.pairs[measure], rows = [];
  const fixed = (value) => (value === null ? "?" : value.toFixed(2));
  pairs.source.forEach((source, at) => {
    const target = pairs.target[at];
    if (!on.has(source) || !on.has(target)) return;
    const rho = pairs.rho[at], low = pairs.low[at], mean = pairs.null_mean[at];
    const row = {
      rho, shown: fixed(rho), models: pairs.n_models[at],
      interval: rho === null ? pairs.reason[at] || "undefined"
        : low === null ? "none below 9 models" : `${fixed(low)} to ${fixed(pairs.high[at])}`,
      null: mean === null ? "none" : `mean ${fixed(mean)}, 95th percentile ${fixed(pairs.null_p95[at])}`,
    };
    const [a, b] = [data.platforms[source].label, data.platforms[target].label];
    rows.push({ ...row, from: a, to: b }, { ...row, from: b, to: a });
  });
  return rows;
}

function matrixChart(rows, labels) {
  const scale = { domain: labels };
  const labelLimit = innerWidth > 900 ? 230 : 120;
  const isNarrow = (Math.min(innerWidth, 1240) - 190) / labels.length < 26;
  const about = tooltip(["from"], ["to"], ["shown", "rho"], ["interval", "95 % interval"],
    ["null", "with shuffled latencies"], ["models"]);
  const x = { field: "to", type: "nominal", scale, title: "to",
    axis: { labelAngle: isNarrow ? -90 : -40, labelLimit, orient: "bottom", domain: false, ticks: false, grid: false } };
  const y = { field: "from", type: "nominal", scale, title: "from", axis: { labelLimit, grid: false } };
  const isDark = "isValid(datum.rho) && (datum.rho > 0.9 || datum.rho < 0.12)";
  const colour = { domain: [0, 0.5, 0.8, 1], range: ["#B5530D", "#F3DFC8", "#A9CDE6", "#0B5394"],
    clamp: true, interpolate: "rgb" };
  // Figures that would stand on one another are told on hover and in the table.
  const figures = isNarrow ? [] : [
    { data: { name: "rows" }, mark: { type: "text", fontSize: 11 },
      encoding: { x, y, tooltip: about, text: { field: "shown" },
        opacity: { value: 1, condition: { test: "!isValid(datum.rho)", value: 0.35 } },
        color: { value: "#1b1b1b", condition: [
          { test: isDark, value: "#ffffff" }, { test: "!isValid(datum.rho)", value: INK },
        ] } } },
  ];
  return chart(34 * labels.length + 80, { rows }, [
    { data: { name: "rows" }, mark: { type: "rect", cornerRadius: 3, stroke: null },
      encoding: { x, y, tooltip: about,
        color: { field: "rho", type: "quantitative", scale: colour, legend: null } } },
    ...figures,
  ]);
}

function matrixPanels(sides) {
  if (sides.length < 2) return [];
  const labels = sides.map((number) => data.platforms[number].label);
  return MEASURES.map(([measure, title, caption]) => {
    const rows = matrixRows(measure, sides);
    return {
      title, caption,
      description: `Rank correlation of ${title} between ${plural(sides.length, "platform")}, `
        + span(rows.map((row) => row.rho), "").trim() + ".",
      spec: () => matrixChart(rows, labels),
    };
  });
}
