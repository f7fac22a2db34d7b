"use strict";
// Fetches the moving part of a page every two seconds while somebody looks at it, and shows the
// report anew when its rows have changed. Polling: no connection stays open, and a server that was
// started again goes on being asked.
(function () {
  const EVERY_MS = 2000;
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
    // A link or a list in use is not taken away under the reader's hands.
    if (focused && focused.tagName !== "SUMMARY") return;
    live.innerHTML = html;
    for (const one of live.querySelectorAll("details")) {
      one.open = open.includes(one.dataset.keep);
      if (focused) one.querySelector("summary").focus();
    }
  }

  function showAnew() {
    const inside = frame.contentWindow;
    const top = inside.scrollY;
    frame.addEventListener("load", function () {
      frame.contentWindow.scrollTo(0, top);
      watchFrame();
    }, { once: true });
    isTouched = false;
    news.textContent = "";
    inside.location.reload();
  }

  function offer() {
    const button = document.createElement("button");
    button.textContent = "New rows: show them";
    button.addEventListener("click", showAnew);
    news.replaceChildren(button);
  }

  function watchFrame() {
    for (const kind of ["pointerdown", "keydown"]) {
      frame.contentWindow.addEventListener(kind, function () { isTouched = true; });
    }
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
      else if (isNew) showAnew();
      return;
    }
    isBehind = true;
    if (made !== null) {
      const when = answer.headers.get("fleetrank-made").slice(11, 16);
      news.textContent = "The report is of " + when + " UTC. Newer rows are stored: it is made " +
        "anew when nothing is measured on this host.";
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
      // The server is gone for now: what is shown stays, and the next look may find it again.
      if (news) news.textContent = "The server does not answer.";
    }
    setTimeout(look, EVERY_MS);
  }

  if (frame) {
    frame.addEventListener("load", watchFrame, { once: true });
    if (frame.contentDocument && frame.contentDocument.readyState === "complete") watchFrame();
  }
  setTimeout(look, EVERY_MS);
})();
