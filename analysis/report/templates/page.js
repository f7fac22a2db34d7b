"use strict";
// Draws the charts whose specifications lie beside them; `ast` evaluates no text as code.
(async function () {
  const scripts = Array.from(document.querySelectorAll("script[data-chart]"));
  for (const script of scripts) {
    const target = document.getElementById(script.dataset.chart);
    try {
      await vegaEmbed(target, JSON.parse(script.textContent), {
        actions: false, ast: true, renderer: "svg", tooltip: { theme: "custom" },
      });
      // The description of the whole stands for its hundreds of marks.
      target.querySelector("svg").setAttribute("aria-hidden", "true");
    } catch (error) {
      target.classList.add("failed");
      target.textContent = "This chart could not be drawn; its figures are in the table below.";
      console.error(error);
    }
  }
  document.documentElement.dataset.charts = String(scripts.length);
})();
addEventListener("beforeprint", function () {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
