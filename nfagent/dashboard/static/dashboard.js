// Puts what the stream sends into the page, and says so when the stream is lost. Without it the page is as it was when loaded.
import { apply, start } from "./filters.js";
import { choose } from "./range.js";
import { update } from "./follow.js";

const SILENCE_MS = 15000; // the server says something at least every 5 s
const AGAIN_MS = 4000; // after a refusal; otherwise the browser itself connects again
const GRACE_MS = 2500; // a connection that is back by then was not lost

const root = document.documentElement;
const element = (id) => document.getElementById(id);
let seen = document.body.dataset.seen;
let source = null;
let heard = Date.now();
let failing = null; // since when, in ms

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

function change(fragments) {
  if (!update(fragments)) location.reload(); // the server has other lanes than this page
  apply();
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
      if (told.fragments) change(told.fragments);
    });
  }
}

start();
choose();
connect();
setInterval(check, 500);
