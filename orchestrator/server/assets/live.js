"use strict";
// Fetches the changing part of a page every two seconds while the page is visible, and reloads the
// report when its rows have changed. It polls: no connection stays open, and the page continues
// after a restart of the server.
(function () {
  const EVERY_MS = 2000;
  const COMPUTING = "Computing the report: latencies, pairs of models, ranks and frontiers. The longest part is the " +
    "comparison of platforms.";
  const live = document.getElementById("live");
  const frame = document.getElementById("report");
  const news = document.getElementById("news");
  let isTouched = false;
  let shown = null; // fingerprint of the results behind the report in the frame
  let isBehind = false; // the report in the frame is known to be older than the results

  function fingerprint() {
    const state = document.getElementById("state");
    return state ? state.dataset.fingerprint : "";
  }

  function put(html) {
    const open = Array.from(live.querySelectorAll("details[open]"), function (one) {
      return one.dataset.keep;
    });
    const focused = live.contains(document.activeElement) ? document.activeElement : null;
    // A link or a list that has the focus is not replaced.
    if (focused && focused.tagName !== "SUMMARY") return;
    live.innerHTML = html;
    for (const one of live.querySelectorAll("details")) {
      one.open = open.includes(one.dataset.keep);
      if (focused) one.querySelector("summary").focus();
    }
  }

  function reloadReport() {
    const inside = frame.contentWindow;
    const top = inside.scrollY;
    frame.addEventListener("load", function () {
      frame.contentWindow.scrollTo(0, top);
      showReport();
    }, { once: true });
    isTouched = false;
    news.textContent = COMPUTING;
    inside.location.reload();
  }

  function offer() {
    const button = document.createElement("button");
    button.textContent = "New rows: show them";
    button.addEventListener("click", reloadReport);
    news.replaceChildren(button);
  }

  function watchFrame() {
    for (const kind of ["pointerdown", "keydown"]) {
      frame.contentWindow.addEventListener(kind, function () { isTouched = true; });
    }
  }

  function showReport() {
    if (news.textContent === COMPUTING) news.textContent = "";
    watchFrame();
  }

  async function renew() {
    if (!frame || fingerprint() === shown) return;
    const answer = await fetch(frame.src);
    const made = answer.headers.get("fleetrank-fingerprint");
    if (made === fingerprint()) {
      const isNew = shown !== null || isBehind;
      shown = made;
      isBehind = false;
      if (isNew && isTouched) offer();
      else if (isNew) reloadReport();
      return;
    }
    isBehind = true;
    if (made !== null) {
      const when = answer.headers.get("fleetrank-made").slice(11, 16);
      news.textContent = "This report was made at " + when + " UTC. Newer rows are stored. It will be " +
        "updated when no measurement runs on this host.";
    }
  }

  async function look() {
    try {
      if (!document.hidden) {
        const answer = await fetch(live.dataset.source);
        if (answer.ok) {
          put(await answer.text());
          await renew();
        }
      }
    } catch {
      // The server is not reachable: the page stays as it is and tries again later.
      if (news) news.textContent = "The server does not answer.";
    }
    setTimeout(look, EVERY_MS);
  }

  if (frame) {
    news.textContent = COMPUTING;
    frame.addEventListener("load", showReport, { once: true });
    const inside = frame.contentDocument;
    if (inside && inside.readyState === "complete" && inside.URL !== "about:blank") showReport();
  }
  setTimeout(look, EVERY_MS);
})();
