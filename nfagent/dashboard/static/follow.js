// Makes a part of the page follow HTML by changing only what differs: focus, opened details and transitions stay as they are.

// Attributes that belong to the reader: opened details, and functions hidden by the filters.
const READERS = new Set(["open", "hidden"]);

function isSame(old, wanted) {
  return old.nodeType === wanted.nodeType && old.nodeName === wanted.nodeName && (old.id || "") === (wanted.id || "");
}

function followAttributes(old, wanted) {
  for (const { name } of [...old.attributes]) {
    if (!wanted.hasAttribute(name) && !READERS.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

function follow(old, wanted, parked) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== wanted.nodeValue) old.nodeValue = wanted.nodeValue;
    return;
  }
  if (old.isEqualNode(wanted)) return; // most parts of most functions; the browser itself compares faster
  followAttributes(old, wanted);
  if (!("part" in wanted.dataset)) followChildren(old, wanted, parked); // otherwise another fragment fills it
}

function followChildren(old, wanted, parked) {
  let here = old.firstChild;
  for (const next of [...wanted.childNodes]) {
    let match = here && isSame(here, next) ? here : null;
    if (!match && next.id) match = [...old.children].find((child) => isSame(child, next)) || moved(next, parked);
    if (!match) {
      old.insertBefore(next, here);
      continue;
    }
    if (match === here) here = here.nextSibling;
    else old.insertBefore(match, here);
    follow(match, next, parked);
  }
  while (here) {
    const rest = here.nextSibling;
    if (here.id) parked.set(here.id, here); // a later list may take it
    here.remove();
    here = rest;
  }
}

// A function that moved is in the list of another location: its card comes along, with its content.
function moved(wanted, parked) {
  if (!("part" in wanted.dataset)) return null;
  return parked.get(wanted.id) || document.getElementById(wanted.id);
}

function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = html; // from this page's own server, which has escaped what is in it
  return template.content;
}

// Puts fragments into the elements with their ids; tells whether this page has them all.
export function update(fragments) {
  const parked = new Map();
  for (const [id, html] of Object.entries(fragments)) {
    const element = document.getElementById(id);
    if (!element) return false;
    followChildren(element, parsed(html), parked);
  }
  return true;
}
