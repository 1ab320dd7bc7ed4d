// Puts what the stream sends into the page, and says so when the stream is lost. Without it the page is as it was when loaded.
"use strict";
(() => {
  const SILENCE_MS = 15000; // the server says something at least every 5 s
  const AGAIN_MS = 4000; // after a refusal; otherwise the browser itself connects again
  const GRACE_MS = 2500; // a connection that is back by then was not lost

  const root = document.documentElement;
  const element = (id) => document.getElementById(id);
  let seen = document.body.dataset.seen;
  let source = null;
  let heard = Date.now();
  let failing = null; // since when, in ms

  // ---- the page follows HTML by changing only what is other: focus, opened details and transitions stay as they are

  function isSame(old, wanted) {
    return old.nodeType === wanted.nodeType && old.nodeName === wanted.nodeName && (old.id || "") === (wanted.id || "");
  }

  function followAttributes(old, wanted) {
    for (const { name } of [...old.attributes]) {
      if (!wanted.hasAttribute(name) && name !== "open") old.removeAttribute(name); // `open` is the reader's
    }
    for (const { name, value } of wanted.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
  }

  function follow(old, wanted) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== wanted.nodeValue) old.nodeValue = wanted.nodeValue;
      return;
    }
    followAttributes(old, wanted);
    followChildren(old, wanted);
  }

  function followChildren(old, wanted) {
    let here = old.firstChild;
    for (const next of [...wanted.childNodes]) {
      let match = here && isSame(here, next) ? here : null;
      if (!match && next.id) match = [...old.children].find((child) => isSame(child, next)) || null;
      if (!match) {
        old.insertBefore(next, here);
        continue;
      }
      if (match === here) here = here.nextSibling;
      else old.insertBefore(match, here);
      follow(match, next);
    }
    while (here) {
      const rest = here.nextSibling;
      here.remove();
      here = rest;
    }
  }

  function update(fragments) {
    for (const [id, html] of Object.entries(fragments)) {
      const template = document.createElement("template");
      template.innerHTML = html; // from this page's own server, which has escaped what is in it
      if (element(id)) followChildren(element(id), template.content);
      else location.reload(); // the server has other lanes than this page
    }
  }

  // ---- the connection

  function show(state, word) {
    root.classList.toggle("is-live", state === "live");
    root.classList.toggle("is-lost", state === "lost");
    element("pulse-word").textContent = word;
  }

  // Called for what is said, not for a connection that opened: one that is made and broken again and again says nothing.
  function well() {
    heard = Date.now();
    failing = null;
    element("lost").hidden = true;
    show("live", "live");
  }

  function check() {
    const now = Date.now();
    if (now - heard > SILENCE_MS) connect();
    if (failing !== null && now - failing > GRACE_MS && element("lost").hidden) {
      const at = element("pulse-at").textContent;
      element("lost").textContent = `Connection to nfagent lost. What is shown is of ${at} UTC; trying to connect again.`;
      element("lost").hidden = false;
      show("lost", "lost, as of");
    }
  }

  function connect() {
    if (source) {
      source.close();
      failing = failing ?? Date.now();
    }
    heard = Date.now();
    const opened = new EventSource(`/dashboard/stream?seen=${encodeURIComponent(seen)}`);
    source = opened;
    opened.onerror = () => {
      failing = failing ?? Date.now();
      if (opened.readyState === EventSource.CLOSED) setTimeout(() => opened === source && connect(), AGAIN_MS);
    };
    for (const kind of ["update", "beat"]) {
      opened.addEventListener(kind, (event) => {
        const told = JSON.parse(event.data);
        well();
        seen = event.lastEventId;
        element("pulse-at").textContent = told.at;
        if (told.fragments) update(told.fragments);
      });
    }
  }

  connect();
  setInterval(check, 500);
})();
