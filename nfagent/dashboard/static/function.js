// Keeps the page of a function up to date. Forms stay as they are.
import { update } from "./follow.js";

const EVERY_MS = 2000;
const lost = document.getElementById("lost");

function atEnd(box) {
  return box.scrollHeight - box.scrollTop - box.clientHeight < 4;
}

async function refresh() {
  const log = document.querySelector("#log pre");
  const follows = atEnd(log);
  const answer = await fetch(`${location.pathname.replace(/\/(move|pin|delete)$/, "")}/parts`, { cache: "no-store" });
  if (answer.status === 404) throw new Error("This network function does not exist any more.");
  if (!answer.ok) throw new Error(`nfagent answers ${answer.status}; what is shown may be outdated.`);
  const { at, fragments } = await answer.json();
  update(fragments);
  document.getElementById("pulse-at").textContent = at;
  if (follows) log.scrollTop = log.scrollHeight;
}

async function repeat() {
  try {
    if (!document.hidden) await refresh();
    lost.hidden = true;
  } catch (error) {
    lost.textContent = error instanceof TypeError ? "Connection to nfagent lost; trying again." : error.message;
    lost.hidden = false;
  }
  setTimeout(repeat, EVERY_MS);
}

for (const log of document.querySelectorAll("#log pre")) log.scrollTop = log.scrollHeight;
setTimeout(repeat, EVERY_MS);
