// Elements with text that sticks out of the card, lane or panel that they are in.
() => {
  const boxes = ".card, .lane, .tile, .link, .panel, .notice";
  const hasText = (it) => [...it.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const cutting = (it) => (it && getComputedStyle(it).textOverflow !== "ellipsis" ? cutting(it.parentElement) : it);
  const found = [...document.querySelectorAll("main *")].filter((it) => {
    const box = it.closest(boxes);
    if (!box || !hasText(it) || it.closest(".hidden, .scroll, noscript")) return false;
    const cut = cutting(it);
    if (cut) return cut.getBoundingClientRect().right > box.getBoundingClientRect().right + 0.5;
    const range = document.createRange(); // of the text itself: its element may be narrower
    range.selectNodeContents(it);
    return range.getBoundingClientRect().right > box.getBoundingClientRect().right + 0.5;
  });
  return found.map((it) => it.outerHTML);
}
