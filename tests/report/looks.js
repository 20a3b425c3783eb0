"use strict";

/** Names what isn't wholly visible in the page, wherever the page itself is scrolled to. */
function cut(selector) {
  const found = [];
  for (const element of document.querySelectorAll(selector)) {
    const box = element.getBoundingClientRect();
    const name = `${element.tagName}.${element.className} ${element.textContent.slice(0, 60)}`;
    if (box.width === 0 || box.left < 0 || box.right > innerWidth + 0.5) found.push(`${name}: off the page`);
    if (element.clientWidth && element.scrollWidth > element.clientWidth + 1) found.push(`${name}: wider than its box`);
    for (let around = element.parentElement; around !== document.body; around = around.parentElement) {
      const frame = around.getBoundingClientRect();
      const inside = box.top > frame.top - 1 && box.bottom < frame.bottom + 1 && box.left > frame.left - 1 && box.right < frame.right + 1;
      if (getComputedStyle(around).overflow !== "visible" && !inside) found.push(`${name}: cut by ${around.className}`);
    }
  }
  return found;
}

/** Opens all that is folded. */
function unfold() {
  document.querySelectorAll("details").forEach((each) => { each.open = true; });
}

/** Gives the contrast of every kind of text with what is behind it, as WCAG counts it. */
function contrasts() {
  const rgba = (text) => {
    const numbers = text.replace("srgb", "").match(/-?[\d.]+(e-?\d+)?/g).map(Number);
    const unit = text.startsWith("color(") ? 255 : 1;
    return [...numbers.slice(0, 3).map((each) => each * unit), numbers[3] ?? 1];
  };
  const over = (top, below) => top.slice(0, 3).map((each, i) => each * top[3] + below[i] * (1 - top[3]));
  const linear = (each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
  const light = (colour) => colour.reduce((sum, each, i) => sum + linear(each / 255) * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) =>
    element ? over(rgba(getComputedStyle(element).backgroundColor), ground(element.parentElement)) : [255, 255, 255];
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const found = {};
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest("svg")) continue;
    const below = ground(element);
    const pair = [light(over(rgba(getComputedStyle(element).color), below)), light(below)];
    found[`${element.tagName}.${element.className}`] = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
  }
  return found;
}

/** Tells what has the focus, in which Service's row, and whether that is seen. */
function focused() {
  const on = document.activeElement;
  const box = on.getBoundingClientRect();
  return {
    what: on.id || on.className || on.tagName.toLowerCase(),
    service: on.closest("tr")?.querySelector(".name").textContent ?? "",
    seen: getComputedStyle(on).outlineStyle !== "none" && box.bottom > 0 && box.top < innerHeight,
  };
}
