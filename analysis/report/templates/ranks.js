// Rank by FLOPs on the left, measured rank on the right; the slope shows the error of FLOPs.
const MIN_SHIFT = 2;
const LINE = 11;
const SIDES = ["by FLOPs", "measured"];

function rankRows(platform) {
  return shown.models
    .filter((model) => cell(platform, model, "flops_rank") !== null)
    .map((model) => {
      const flops = cell(platform, model, "flops_rank"), measured = cell(platform, model, "latency_rank");
      const shift = measured - flops, places = Math.abs(shift);
      return {
        ...data.models[model], model: data.models[model].name, flops, measured, shift, places,
        off: places >= MIN_SHIFT,
        verdict: shift === 0 ? "as FLOPs predict"
          : `${places} ${places === 1 ? "place" : "places"} ${shift > 0 ? "slower" : "faster"} than FLOPs say`,
      };
    });
}

// Where names would overlap, the models with the largest shift keep theirs.
function namedEnds(ends, pixelsPerRank) {
  const named = [];
  for (const end of [...ends].sort((a, b) => b.places - a.places)) {
    const isFree = named.every((other) => other.side !== end.side
      || Math.abs(other.rank - end.rank) * pixelsPerRank >= LINE);
    if (isFree) named.push({ ...end, opacity: end.off ? 1 : 0.6 });
  }
  return named;
}

function ranksChart(rows, count) {
  const ends = rows.flatMap((row) => [
    { ...row, side: SIDES[0], rank: row.flops }, { ...row, side: SIDES[1], rank: row.measured },
  ]);
  const height = Math.max(240, 19 * Math.min(count, 40) + 40);
  const names = namedEnds(ends, ((height - 40) / count) || 1);
  const about = tooltip(["model"], ["flops", "rank by FLOPs"], ["measured", "measured rank"], ["verdict"]);
  return chart("ranks", height, { ends, names },
    { ...FAMILY_VALUES, about, domain: [count + 0.6, 0.4], above: 4, sides: SIDES, left: SIDES[0], right: SIDES[1] });
}

function ranksPanels(numbers) {
  return numbers.map((platform) => {
    const rows = rankRows(platform);
    const count = cell(platform, data.models.indexOf(data.models.find((one) => one.name === rows[0].model)), "n_ranked");
    const off = rows.filter((row) => row.off).length;
    const caption = `${off} of ${plural(rows.length, "model")} ${off === 1 ? "is" : "are"} ${MIN_SHIFT} or more places off`
      + (rows.length < count ? `; ranks are among ${count}` : "");
    const { title } = data.platforms[platform];
    return {
      title, caption,
      description: `Rank by FLOPs against measured rank on ${title}: ${caption}.`,
      spec: () => ranksChart(rows, count),
    };
  });
}
