// Pairs of texts that cover one another. What an ellipsis cuts off is not seen.
() => {
  const texts = [];
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility() || element.closest(".hidden, option, noscript")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const cut = element.closest("h3, .note, .whole, th, .name");
    const limit = cut && getComputedStyle(cut).textOverflow === "ellipsis" ? cut.getBoundingClientRect().right : Infinity;
    for (const { left, right, top, bottom } of range.getClientRects()) {
      texts.push({ node, text: node.data.trim(), left, right: Math.min(right, limit), top: top + 2, bottom: bottom - 2 });
    }
  }
  texts.sort((a, b) => a.top - b.top);
  const found = [];
  for (const [index, one] of texts.entries()) {
    for (const other of texts.slice(index + 1)) {
      if (other.top >= one.bottom) break;
      if (other.node === one.node) continue; // a text with an ellipsis has several boxes
      if (other.left < one.right - 0.5 && one.left < other.right - 0.5) found.push(`${one.text} | ${other.text}`);
    }
  }
  return found;
}
