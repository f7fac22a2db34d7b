// How far ranks carry over between platforms.
const IS_NARROW = innerWidth < 640;
const MAX_SIDE = IS_NARROW ? 6 : 24;
const MEASURES = [
  ["latency", "Latency", "Spearman's rho of the models' ranks"],
  ["frm", "FRM", "compare with its null: hover, or see the table below"],
];

// At most n items of a list, evenly spread; the list is sorted by tier.
function spread(list, most) {
  if (list.length <= most) return list;
  return Array.from({ length: most }, (_, at) => list[Math.floor((at * list.length) / most)]);
}

// Platforms with a figure: with too few models, or without FLOPs, a platform has none.
function comparedPlatforms(measure = "latency") {
  const { source, target, rho } = data.pairs[measure];
  const known = new Set(rho.flatMap((value, at) => (value === null ? [] : [source[at], target[at]])));
  return shown.platforms.filter((number) => known.has(number));
}

// Shortens a long name in the middle of its longest parts; the device's part is last.
function shortName(name, most) {
  const parts = name.split(", ").map((text, at) => ({ text, size: text.length, least: at ? 5 : 14 }));
  let left = name.length - most;
  while (left > 0) {
    const longest = parts.reduce((one, other) => (other.size - other.least > one.size - one.least ? other : one));
    if (longest.size <= longest.least) break;
    longest.size -= 1;
    left -= 1;
  }
  const short = parts.map(({ text, size }) => withoutMiddle(text, size)).join(", ");
  return withoutMiddle(short, most);
}

function withoutMiddle(text, size) {
  if (text.length <= size) return text;
  return `${text.slice(0, Math.floor(size / 2))}\u2026${text.slice(text.length - Math.ceil(size / 2) + 1)}`;
}

// Equal names are numbered: a chart would treat them as one platform.
function shortNames(names, most) {
  const short = names.map((name) => shortName(name, most));
  return short.map((name, at) => (short.filter((other) => other === name).length > 1
    ? `${name} (${at + 1})` : name));
}

// Its p-value decides; that of shuffled latencies is exceeded if FLOPs alone transfer.
function residualText({ residual_null_mean: mean, residual_p_adjusted: p }) {
  if (mean === null) return "none without FLOPs";
  return `mean ${mean.toFixed(2)}, ${p <= 0.05 ? "exceeded" : "not exceeded"}, adjusted p = ${p.toFixed(3)}`;
}

// A title is longer than the label only if it says that the device is simulated or virtual.
const isReal = ({ label, title }) => title === label;

// The names on the axes: a narrow screen has their numbers, 1 for the first, across the bottom.
function axisNames(platforms) {
  const labels = platforms.map(({ label }) => label);
  const short = IS_NARROW ? labels.map((label, at) => `${at + 1} ${shortName(label, 20)}`)
    : shortNames(labels, innerWidth > 900 ? 42 : 20);
  return short.map((name, at) => (isReal(platforms[at]) ? name : `${name}*`));
}

function matrixRows(measure, sides, names) {
  const on = new Set(sides), pairs = data.pairs[measure], rows = [];
  const fixed = (value) => (value === null ? data.missing : value.toFixed(2));
  pairs.source.forEach((source, at) => {
    const target = pairs.target[at];
    if (!on.has(source) || !on.has(target)) return;
    const rho = pairs.rho[at], low = pairs.low[at], mean = pairs.null_mean[at];
    const row = {
      rho, shown: fixed(rho), models: pairs.n_models[at],
      interval: rho === null ? pairs.reason[at] || "undefined"
        : low === null ? "none below 9 models" : `${fixed(low)} to ${fixed(pairs.high[at])}`,
      statistics: statisticsOf(source, target),
      null: mean === null ? "none" : `mean ${fixed(mean)}, 95th percentile ${fixed(pairs.null_p95[at])}`,
      residual: residualText({ residual_null_mean: pairs.residual_null_mean[at], residual_p_adjusted: pairs.residual_p_adjusted[at] }),
    };
    const [a, b] = [source, target].map((number) => (
      { name: names[sides.indexOf(number)], label: data.platforms[number].title }));
    rows.push({ ...row, y: a.name, from: a.label, x: b.name, to: b.label },
      { ...row, y: b.name, from: b.label, x: a.name, to: a.label });
  });
  return rows;
}

function matrixChart(rows, labels) {
  const isDense = (Math.min(innerWidth, 1240) - (IS_NARROW ? 222 : 190)) / labels.length < 26;
  const about = tooltip(["from"], ["to"], ["shown", "rho"], ["interval", "95 % interval"],
    ["null", "with shuffled latencies"], ["residual", "if only FLOPs transfer"], ["models"], ["statistics"]);
  // Figures that would overlap are shown on hover and in the table.
  return chart("matrix", 34 * labels.length + 80, { rows, figures: isDense ? [] : rows },
    { labels, about, across: IS_NARROW ? "split(datum.label, ' ')[0]" : "datum.label",
      angle: IS_NARROW ? 0 : isDense ? -90 : -40 });
}

function matrixPanels(sides) {
  return MEASURES.flatMap(([measure, title, caption]) => {
    const compared = new Set(comparedPlatforms(measure));
    const these = sides.filter((number) => compared.has(number));
    if (these.length < 2) return [];
    const platforms = these.map((number) => data.platforms[number]), names = axisNames(platforms);
    const mark = platforms.every(isReal) ? "" : "; * is simulated or virtual";
    const rows = matrixRows(measure, these, names);
    return [{
      title, caption: caption + mark,
      description: `Rank correlation of ${title} between ${plural(these.length, "platform")}, `
        + span(rows.map((row) => row.rho), "").trim() + ".",
      spec: () => matrixChart(rows, names),
    }];
  });
}
