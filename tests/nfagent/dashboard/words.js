// Words that a line break divides, other than very long ones and after a slash or a colon.
() => {
  const LONG = 32;
  const broken = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.parentElement.checkVisibility() || node.parentElement.closest(".hidden, script, noscript, pre")) continue;
    for (const { 0: word, index } of node.data.matchAll(/[^\s/:]+/g)) {
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
      if (word.length <= LONG && lines.size > 1) broken.push(word);
    }
  }
  return broken;
}
