// Adds up in window.shifts how far things move on the page, as browsers measure it (Layout Instability).
() => {
  window.shifts = 0;
  window.moved = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      window.shifts += entry.value;
      window.moved.push(...entry.sources.map((source) => source.node && source.node.textContent.trim()));
    }
  }).observe({ type: "layout-shift" });
}
