// The filter's controls. The filter's state is in the address, so that a view can be shared.
const form = document.getElementById("filters");
const LONG_LIST = 12;

function offerFilters() {
  const place = form.querySelector(".picks");
  for (const dimension of DIMENSIONS) {
    if (dimension.options.length > 1) place.append(pickOf(dimension));
  }
  form.hidden = place.children.length === 0;
  form.addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("reset").addEventListener("click", () => {
    chosen.forEach((set) => set.clear());
    tellAddress();
    apply();
    form.querySelector("summary").focus();
  });
  document.addEventListener("click", (event) => closePicks(event.target.closest(".pick")));
  form.addEventListener("keydown", (event) => {
    const open = event.target.closest(".pick[open]");
    if (event.key !== "Escape" || !open) return;
    open.open = false;
    open.querySelector("summary").focus();
  });
}

function closePicks(except) {
  for (const pick of form.querySelectorAll(".pick[open]")) if (pick !== except) pick.open = false;
}

function pickOf(dimension) {
  const list = element("div", { class: "options", role: "group", "aria-label": dimension.label });
  for (const value of dimension.options) list.append(optionOf(dimension, value));
  const panel = element("div", { class: "panel" });
  if (dimension.options.length > LONG_LIST) panel.append(searchOf(dimension, list));
  panel.append(list);
  return element("details", { class: "pick", "data-pick": dimension.name },
    element("summary", {}, element("span", {}, dimension.label), " ", element("b", {}, "all")), panel);
}

function optionOf(dimension, value) {
  const box = element("input", { type: "checkbox" });
  box.value = value;
  box.addEventListener("change", () => {
    const set = chosen.get(dimension.name);
    if (box.checked) set.add(value);
    else set.delete(value);
    tellAddress();
    apply();
  });
  return element("label", {}, box, " ", element("span", {}, shownName(dimension, value)));
}

function shownName(dimension, value) {
  return dimension.name === "family" ? value.replaceAll("_", " ") : value;
}

function searchOf(dimension, list) {
  const search = element("input", { type: "search", placeholder: "Find",
    "aria-label": `Find a ${dimension.name}` });
  search.addEventListener("input", () => {
    const wanted = search.value.toLowerCase();
    for (const label of list.children) label.hidden = !label.textContent.toLowerCase().includes(wanted);
  });
  return search;
}

function showState(unknown) {
  for (const pick of form.querySelectorAll(".pick")) {
    const dimension = DIMENSIONS.find((one) => one.name === pick.dataset.pick);
    const set = chosen.get(dimension.name);
    pick.classList.toggle("set", set.size > 0);
    pick.querySelector("b").textContent = set.size === 0 ? "all"
      : set.size === 1 ? shownName(dimension, [...set][0]) : `${set.size} of ${dimension.options.length}`;
    for (const box of pick.querySelectorAll("input[type=checkbox]")) box.checked = set.has(box.value);
  }
  const parts = ["platforms", "models"].map((kind) => {
    const [on, all, stored] = [shown[kind].length, data[kind].length, data.in_results[kind]];
    const more = stored > all ? ` here (${stored.toLocaleString("en")} in the results)` : "";
    return `${on.toLocaleString("en")} of ${plural(all, kind.slice(0, -1))}${more}`;
  });
  const nothing = shown.platforms.length === 0 || shown.models.length === 0 ? " Nothing fits: reset, or choose less." : "";
  const lost = unknown.length ? ` Not on this page: ${unknown.join(", ")}.` : "";
  document.getElementById("shown").textContent = `Showing ${parts.join(", ")}.${nothing}${lost}`;
  document.getElementById("reset").hidden = shown.isAll;
  document.documentElement.toggleAttribute("data-filtered", !shown.isAll);
}

// `#tier=edge&model=a&model=b&at=latency`; a plain `#latency` stays a plain anchor.
function tellAddress(at) {
  const said = new URLSearchParams();
  for (const { name } of DIMENSIONS) for (const value of chosen.get(name)) said.append(name, value);
  const place = at || new URLSearchParams(location.hash.slice(1)).get("at");
  if (place && said.size > 0) said.set("at", place);
  const hash = said.toString() || at || "";
  history.replaceState(null, "", hash ? "#" + hash : location.pathname + location.search);
}

function readAddress() {
  const unknown = [], said = new URLSearchParams(location.hash.slice(1));
  for (const dimension of DIMENSIONS) {
    const asked = said.getAll(dimension.name);
    const known = asked.filter((value) => dimension.options.includes(value));
    unknown.push(...asked.filter((value) => !known.includes(value)));
    chosen.set(dimension.name, new Set(known));
  }
  return { unknown, at: said.get("at") };
}

function goTo(id) {
  const place = document.getElementById(id);
  if (!place || !place.matches("section, .fold")) return;
  place.scrollIntoView();
  if (place.matches(".fold")) place.open = true;
  (place.matches(".fold") ? place.firstElementChild : place).focus({ preventScroll: true });
}

// Following an anchor would remove the filter from the address.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (!link || shown.isAll) return;
  event.preventDefault();
  const id = link.getAttribute("href").slice(1);
  tellAddress(id);
  goTo(id);
});
