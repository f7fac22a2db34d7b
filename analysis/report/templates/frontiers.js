// Accuracy against latency on a target, and which frontier models a source predicted.
const FATES = {
  h: ["hit", "#009E73", "circle"], m: ["miss", "#D55E00", "diamond"],
  f: ["false alarm", "#CC79A7", "cross"], n: ["on neither", "#8a919c", "circle"],
};

// The source and target that the reader selected; -1 is any.
const ends = { s: -1, t: -1 };

function offerEnds(place, redraw) {
  for (const [side, label] of [["s", "Source"], ["t", "Target"]]) {
    const numbers = [...new Set(data.frontiers.map((pair) => pair[side]))].sort((a, b) => a - b);
    const select = element("select", { "aria-label": label }, new Option("any", -1),
      ...numbers.map((number) => new Option(data.platforms[number].label, number)));
    select.addEventListener("change", () => { ends[side] = Number(select.value); redraw(); });
    place.append(element("label", {}, label + " ", select));
  }
}

function frontierPairs() {
  const on = new Set(shown.platforms);
  const pairs = data.frontiers.filter((pair) => on.has(pair.s) && on.has(pair.t)
    && ["s", "t"].every((side) => ends[side] < 0 || ends[side] === pair[side]));
  // Pairs of different devices and tiers come before settings of one device; edge tiers come first.
  const order = (pair) => {
    const source = data.platforms[pair.s], target = data.platforms[pair.t];
    return (source.device === target.device ? 4 : 0) + (source.tier === target.tier ? 2 : 0)
      + (target.tier === "edge" ? 0 : 1);
  };
  return pairs.map((pair, at) => [order(pair), at, pair])
    .sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, , pair]) => pair);
}

function frontierRows(pair) {
  const on = new Set(shown.models);
  return pair.models.map((model, at) => ({
    ...data.models[model], model: data.models[model].name, number: model,
    fate: FATES[pair.fates[at]][0], onTarget: "hm".includes(pair.fates[at]),
    accuracy: cell(pair.t, model, "accuracy"),
    ms: cell(pair.t, model, "ms"), source: cell(pair.s, model, "ms"), isShown: on.has(model),
  })).sort((a, b) => a.ms - b.ms);
}

// Possible places of a name beside its point, as `frontier.vl.json` has them: align, dx, dy. A name
// without room is shown on hover.
const PLACES = [["left", 8, 9], ["left", 8, -9], ["right", -8, -9], ["right", -8, 9]];
// `room` is free to the right of the axis.
const PLOT = { width: 430, height: 210, letter: 5.6, line: 12, room: 20 };

// `at` gives the pixel of a row; only the `named` rows get a name.
function placeNames(points, named, at, plot = PLOT) {
  const taken = points.map((row) => { const [x, y] = at(row); return [x - 5, y - 5, x + 5, y + 5]; });
  for (const row of named) {
    const [x, y] = at(row), width = Math.min(110, row.model.length * plot.letter);
    const boxes = PLACES.map(([align, dx, dy]) => {
      const left = align === "left" ? x + dx : x + dx - width;
      return [left, y + dy - plot.line / 2, left + width, y + dy + plot.line / 2];
    });
    const place = boxes.findIndex((box) => box[0] > 0 && box[2] < plot.width + plot.room
      && !taken.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3]));
    if (place < 0) continue;
    row.place = place;
    taken.push(boxes[place]);
  }
}

// The share of a logarithmic axis from `low` to `high` at which a value is.
function shareOf(value, [low, high]) {
  return Math.log(value / low) / Math.log(high / low);
}

function frontierChart(rows) {
  const points = rows.filter((row) => row.isShown);
  const low = Math.min(...rows.map((row) => row.ms)), high = Math.max(...rows.map((row) => row.ms));
  // Room for the names to the right of the last points.
  const domain = [low * 0.85, high * Math.max(high / low, 2) ** 0.25 * 1.1];
  const percents = rows.map((row) => row.accuracy);
  const [worst, best] = [Math.min(...percents), Math.max(...percents)];
  const room = Math.max(1, (best - worst) * 0.08);
  placeNames(points, points.filter((row) => row.fate !== FATES.n[0]), (row) => [
    shareOf(row.ms, domain) * PLOT.width,
    ((best + room - row.accuracy) / (best - worst + 2 * room)) * PLOT.height,
  ]);
  const [fates, fateColours, fateShapes] = [0, 1, 2].map((at) => (
    Object.values(FATES).map((one) => one[at])));
  const about = tooltip(["model"], ["fate"], ["ms", "ms on target"], ["source", "ms on source"],
    ["accuracy", "top-1 %"]);
  return chart("frontier", 320, { rows, points }, {
    fates, fateColours, fateShapes, about, times: domain, ticks: logTicks(...domain),
    accuracies: [worst - room, best + room],
  });
}

function frontierPanels(pairs) {
  return pairs.map((pair) => {
    const rows = frontierRows(pair);
    const [source, target] = [data.platforms[pair.s].title, data.platforms[pair.t].title];
    const cut = rows.length < pair.n ? `; ${rows.length} of them drawn` : "";
    const words = statisticsOf(pair.s, pair.t);
    const unlike = words.includes("/") ? `; latencies are ${words}` : "";
    const caption = `precision ${pair.precision.toFixed(2)} (by chance ${pair.chance.toFixed(2)}), `
      + `recall ${pair.recall.toFixed(2)} over ${plural(pair.n, "model")}${cut}${unlike}`;
    return {
      title: `${source} \u2192 ${target}`, caption,
      description: `Accuracy against latency on ${target}, predicted by ${source}: ${caption}.`,
      spec: () => frontierChart(rows),
    };
  });
}
