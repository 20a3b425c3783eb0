"use strict";
(() => {
  const input = document.getElementById("search");
  const hits = document.getElementById("hits");
  const chips = [...document.querySelectorAll(".chip")];
  const rows = [...document.querySelectorAll("#services tbody tr")];
  const lanes = [...document.querySelectorAll("#diagram g.lane")];
  const svg = document.querySelector("#diagram svg");
  const none = document.getElementById("none");
  const frame = svg ? svg.viewBox.baseVal : null;
  const head = lanes.length ? Number(lanes[0].dataset.top) : 0;

  function wanted(row, words, changes) {
    return (changes.size === 0 || changes.has(row.dataset.change)) && words.every((word) => row.dataset.text.includes(word));
  }

  function show() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const changes = new Set(chips.filter((chip) => chip.getAttribute("aria-pressed") === "true").map((chip) => chip.dataset.change));
    let count = 0;
    let top = head;
    rows.forEach((row, index) => {
      const visible = wanted(row, words, changes);
      row.hidden = !visible;
      count += visible ? 1 : 0;
      const lane = lanes[index];
      lane.toggleAttribute("hidden", !visible);
      if (visible) {
        lane.setAttribute("transform", `translate(0 ${top})`);
        top += Number(lane.dataset.height);
      }
    });
    if (frame) {
      svg.setAttribute("viewBox", `0 0 ${frame.width} ${Math.max(top + 10, head + 10)}`);
    }
    hits.textContent = `${count} of ${rows.length}`;
    if (none) {
      none.hidden = count > 0;
    }
  }

  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
      show();
    });
  }
  input.addEventListener("input", show);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== input && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      input.focus();
    } else if (event.key === "Escape" && (input.value || document.activeElement === input)) {
      input.value = "";
      show();
    }
  });
  if (location.hash.length > 1) {
    try {
      input.value = decodeURIComponent(location.hash.slice(1));
    } catch {
      input.value = "";
    }
  }
  show();
})();
