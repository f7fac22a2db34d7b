// Sets of ranks of models that took turns: of the medians of processes, and without the host's effects.
const DESIGNS = ["medians of processes", "without the host"];

function turnRows(number) {
  return data.turns[number].rows.flatMap(([model, ...sets]) => sets.map(([rank, low, high], at) => ({
    model: data.models[model].name, design: DESIGNS[at], rank, low, high,
    set: low === high ? `${low}` : `${low} to ${high}` })));
}

function turnsPanels(numbers) {
  const about = tooltip(["model"], ["design", "ranked by"], ["rank"], ["set", "ranks that it can have"]);
  return numbers.map((number) => {
    const rows = turnRows(number), models = [...new Set(rows.map((row) => row.model))];
    const sure = DESIGNS.map((design) => rows.filter((row) => row.design === design && row.low === row.high).length);
    const caption = `${sure[0]} of ${plural(models.length, "model")} with a certain rank by medians, `
      + `${sure[1]} without the host`;
    const { title } = data.platforms[data.turns[number].platform];
    return {
      title, caption, description: `Sets of ranks on ${title}: ${caption}.`,
      spec: () => chart("turns", 46 + 26 * models.length, { rows }, { about, models, designs: DESIGNS,
        domain: [0.5, models.length + 0.5] }),
    };
  });
}
