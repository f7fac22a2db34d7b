// Draws a Vega-Lite specification of `specs`. `currentColor` takes colours from the style sheet: dark
// mode and print do not redraw.

// A specification with its holes {"$": name} filled, its points, and the style of `look.json`.
function chart(name, height, datasets, values = {}) {
  return {
    ...filled(specs[name], values), $schema: "https://vega.github.io/schema/vega-lite/v6.json",
    width: "container", height, background: "transparent", datasets, config: specs.look,
    autosize: { type: "fit", contains: "padding" },
  };
}

// As the parser of Python's `charts.filled` does.
function filled(part, values) {
  return JSON.parse(JSON.stringify(part), (_, one) => {
    if (one === null || typeof one !== "object" || !("$" in one)) return one;
    if (!(one.$ in values)) throw new Error(`a chart needs a value for ${one.$}`);
    return values[one.$];
  });
}

function tooltip(...fields) {
  return fields.map(([field, title]) => ({ field, title: title || field }));
}

// False if it could not be drawn; the reason is on the console.
async function drawChart(box, spec) {
  try {
    // `ast` evaluates no text as code; no style is injected, because the style sheets have it.
    await vegaEmbed(box, spec, { actions: false, ast: true, renderer: "svg", defaultStyle: false,
      tooltip: { theme: "custom", disableDefaultStyle: true } });
    // One description replaces those of hundreds of marks.
    box.querySelector("svg").setAttribute("aria-hidden", "true");
    box.setAttribute("role", "img");
    box.removeAttribute("aria-roledescription");
    return true;
  } catch (error) {
    box.classList.add("failed");
    box.textContent = "This chart could not be drawn; its figures are in the table below.";
    console.error(error);
    return false;
  }
}

const FILE_PX = 688;

// A button that draws a chart again, black on white in the width of two columns, and saves it.
function saveButton(title, name, make) {
  const button = element("button", { type: "button", "aria-label": `Save ${title} as SVG` }, "Save SVG");
  button.addEventListener("click", async () => {
    const { spec, text } = make(), box = element("div", { hidden: "" });
    document.body.append(box);
    const { view, finalize } = await vegaEmbed(box, { ...withLegends(spec), width: FILE_PX, background: "white" },
      { actions: false, ast: true, renderer: "svg", defaultStyle: false });
    const drawn = await view.toSVG();
    finalize();
    box.remove();
    // A file has no style sheet: `currentColor` is black in it.
    const about = element("desc", {}, text).outerHTML;
    const url = URL.createObjectURL(new Blob([drawn.replace(/<svg[^>]*>/, (head) => head + about)], { type: "image/svg+xml" }));
    element("a", { href: url, download: `${name}.svg` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  });
  return button;
}

// The page has one legend of families beside all charts; a file has its own.
function withLegends(spec) {
  const found = Object.values(spec.datasets).flat().map(({ family }) => family).filter(Boolean);
  const legend = { orient: "bottom", title: null, columns: 6, values: [...new Set(found)] };
  const inside = (part) => {
    if (Array.isArray(part)) return part.map(inside);
    if (part === null || typeof part !== "object") return part;
    const whole = Object.fromEntries(Object.entries(part).map(([key, one]) => [key, inside(one)]));
    return part.field === "family" && part.legend === null ? { ...whole, legend } : whole;
  };
  return { ...inside({ ...spec, datasets: null }), datasets: spec.datasets };
}
