"use strict";
(() => {
  const tip = document.getElementById("tip");
  const show = (mark, x, y) => {
    tip.textContent = JSON.parse(document.getElementById("tips").textContent)[Number(mark.dataset.t)];
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = Math.max(4, y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18) + "px";
  };
  const around = [[0, 0], [4, 0], [-4, 0], [0, 4], [0, -4], [7, 0], [-7, 0], [0, 7], [0, -7]];  // offsets to try around the pointer, because lines are thin
  const find = event => {
    if (!(event.target instanceof Element) || !event.target.closest("svg")) return null;
    for (const [x, y] of around) {
      const mark = document.elementFromPoint(event.clientX + x, event.clientY + y)?.closest("[data-t]");
      if (mark) return mark;
    }
    return null;
  };
  const point = event => {
    const mark = find(event);
    if (mark) show(mark, event.clientX, event.clientY); else tip.hidden = true;
  };
  document.addEventListener("pointermove", point);
  document.addEventListener("pointerdown", point);
  document.addEventListener("click", async event => {
    const button = event.target instanceof Element ? event.target.closest("button[data-copies]") : null;
    if (!button) return;
    const text = document.getElementById(button.dataset.copies);
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "copied";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(text);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = "selected: press Ctrl-C";
    }
    setTimeout(() => { button.textContent = label; }, 2000);
  });
})();
