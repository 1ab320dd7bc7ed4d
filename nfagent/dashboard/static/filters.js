// Hides the network functions that the reader did not ask for. The address keeps the choice, so that it can be passed on.

const NAMES = ["words", "state", "place", "project"];
const form = document.getElementById("filters");

function chosen() {
  const found = Object.fromEntries(NAMES.map((name) => [name, form.elements.namedItem(name).value]));
  return { ...found, words: found.words.toLowerCase().split(/\s+/).filter(Boolean) };
}

function isWanted(card, { words, state, place, project }) {
  const { dataset } = card;
  if (state && dataset.state !== state) return false;
  if (place && dataset.place !== place) return false;
  if (project && dataset.project !== project) return false;
  return words.every((word) => dataset.words.includes(word));
}

// Called after every change of the page.
export function apply() {
  const wanted = chosen();
  const cards = document.querySelectorAll("[data-words]");
  let shown = 0;
  for (const card of cards) {
    const isHidden = !isWanted(card, wanted);
    if (!isHidden) shown += 1;
    if (card.parentElement.hidden !== isHidden) card.parentElement.hidden = isHidden;
  }
  const count = form.elements.namedItem("count");
  const text = shown === cards.length ? "" : `${shown} of ${cards.length} shown`;
  if (count.textContent !== text) count.textContent = text;
}

function keep() {
  const address = new URL(location.href);
  for (const name of NAMES) {
    const { value } = form.elements.namedItem(name);
    if (value) address.searchParams.set(name, value);
    else address.searchParams.delete(name);
  }
  history.replaceState(null, "", address);
}

// Takes the choice from the address.
export function start() {
  const address = new URL(location.href);
  for (const name of NAMES) form.elements.namedItem(name).value = address.searchParams.get(name) ?? "";
  const change = () => {
    apply();
    keep();
  };
  form.addEventListener("input", change);
  form.addEventListener("reset", () => setTimeout(change)); // the fields are empty only afterwards
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}
