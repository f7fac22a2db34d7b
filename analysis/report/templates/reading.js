// The time to read a text at once, in windows and in segments, with the crossovers of each way.

function readingRows(number) {
  const { model, rows } = data.reading[number];
  const isShown = model === null || shown.models.includes(model);
  return isShown ? rows.map(([line, tokens, ms]) => ({ line, tokens, ms })) : [];
}

// Between two points the time per token is a line, as the table interpolates it.
function readingCurves(rows) {
  const parts = 12, curves = [];
  rows.forEach((row, at) => {
    const next = rows.slice(at + 1).find((other) => other.line === row.line) || row;
    for (let part = 0; part < parts; part += 1) {
      const tokens = row.tokens + (next.tokens - row.tokens) * (part / parts);
      const rate = row.ms / row.tokens + (next.ms / next.tokens - row.ms / row.tokens) * (part / parts);
      curves.push({ line: row.line, tokens, ms: tokens * rate });
    }
  });
  return curves;
}

// Every way of the section: each has one colour in all panels.
const READING_WAYS = [...new Set(data.reading.flatMap(({ rows }) => rows.map(([line]) => line)))];

function readingPanels(numbers) {
  return numbers.map((number) => {
    const { title, crossings } = data.reading[number], rows = readingRows(number);
    const ticks = [...new Set(rows.map((row) => row.tokens))].sort((a, b) => a - b);
    // An end of an interval that is beyond the measured lengths is drawn at the last one.
    const marks = crossings.map(([line, tokens, low, high]) => ({ line, tokens, low, high,
      from: high === null ? low : low ?? ticks[0], to: low === null ? high : high ?? ticks.at(-1) }));
    const lines = READING_WAYS.filter((way) => rows.some((row) => row.line === way));
    const figures = rows.map((row) => row.ms), domain = [Math.min(...figures) * 0.7, Math.max(...figures) * 1.4];
    const found = marks.map((mark) => `${mark.line} from ${Math.round(mark.tokens)} tokens`).join("; ");
    const faster = found ? `Faster than vanilla: ${found}` : "no crossover between the measured lengths";
    return {
      title, caption: faster,
      description: `Time to read a text on ${title}: ${plural(rows.length, "point")}, ${span(figures, "ms")}. ${faster}.`,
      spec: () => chart("reading", 240 + 16 * lines.length, { rows, marks, curves: readingCurves(rows) }, { ticks, domain, upTicks: logTicks(...domain),
        lines, ways: READING_WAYS, scheme: schemeOf(READING_WAYS),
        about: tooltip(["line", "way"], ["tokens"], ["ms"]),
        aboutMark: tooltip(["line", "way"], ["tokens", "faster from"], ["low", "interval from"], ["high", "to"]) }),
    };
  });
}
