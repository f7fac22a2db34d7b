// Figures over time on a page of the server: the points of each chart are in the page's data block.
(function () {
  for (const [number, series] of data.charts.entries()) {
    const rows = series.points.map(([time, value]) => ({ time, value,
      shown: `${Number(value.toPrecision(4))} ${series.unit}`,
      moment: `${time.slice(0, 19).replace("T", " ")} UTC` }));
    const box = document.getElementById(`chart-${number}`);
    const about = tooltip(["shown", series.title], ["moment", "time"]);
    drawChart(box, { ...chart("time", 150, { rows }, { about }), description: box.ariaLabel });
  }
})();
