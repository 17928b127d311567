(() => {
  "use strict";
  const root = document.documentElement;
  const tip = document.getElementById("tip");
  const said = document.getElementById("said");
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));

  // The theme: the system's, or the reader's own, which the browser keeps where it may.
  const theme = document.getElementById("theme");
  const THEMES = ["system", "light", "dark"];
  const kept = () => { try { return localStorage.getItem("meshplan-theme"); } catch { return null; } };
  const keep = (name) => { try { localStorage.setItem("meshplan-theme", name); } catch { /* a page in a sandbox has no store */ } };
  const show = (name) => {
    if (name === "system") root.removeAttribute("data-theme"); else root.dataset.theme = name;
    theme.textContent = `Theme: ${name}`;
    theme.dataset.now = name;
  };
  theme.hidden = false;
  show(THEMES.includes(kept()) ? kept() : "system");
  theme.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(theme.dataset.now) + 1) % THEMES.length];
    show(next);
    keep(next);
  });

  // Tips: what an element has to say, under the pointer or at the focus. Browsers' own tips would stand beside ours.
  const keyOf = (element) => (element.closest ? (element.closest("[data-key]") || { dataset: {} }).dataset.key : "");
  const tipOf = (element) => {
    const held = element.closest ? element.closest("[data-tip]") : null;
    if (held) return [held, held.dataset.tip];
    // A scenario's tip stands once, in its row of the table.
    const key = keyOf(element);
    const row = key ? document.getElementById(`scenario-${key}`) : null;
    if (row) return [element, row.dataset.tip];
    const title = element.querySelector ? element.querySelector(":scope > title") : null;
    if (!title) return [null, ""];
    element.dataset.tip = title.textContent;
    title.remove();
    return [element, element.dataset.tip];
  };
  const place = (x, y) => {
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 4))}px`;
    tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 18}px`;
  };
  const light = (key, on) => {
    if (key) all("[data-key]").filter((each) => each.dataset.key === key).forEach((each) => each.classList.toggle("lit", on));
  };
  const tell = (element, x, y) => {
    const [owner, text] = tipOf(element);
    tip.hidden = !owner;
    if (!owner) return;
    tip.textContent = text;
    place(x, y);
  };
  document.addEventListener("pointerover", (event) => { tell(event.target, event.clientX, event.clientY); light(keyOf(event.target), true); });
  document.addEventListener("pointermove", (event) => { if (!tip.hidden) place(event.clientX, event.clientY); });
  document.addEventListener("pointerout", (event) => { tip.hidden = true; light(keyOf(event.target), false); });
  document.addEventListener("focusin", (event) => {
    if (!event.target.matches("[data-tip],[data-mark]")) return;
    const box = event.target.getBoundingClientRect();
    tell(event.target, box.left + box.width / 2, box.bottom - 10);
    light(keyOf(event.target), true);
  });
  document.addEventListener("focusout", (event) => { tip.hidden = true; light(keyOf(event.target), false); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

  // Charts take one stop of the Tab key; arrows go from mark to mark in it.
  for (const chart of all("[data-roving]")) {
    const marks = all("[data-mark]", chart);
    if (!marks.length) continue;
    const order = marks.map((mark) => [mark.getBoundingClientRect(), mark]);
    order.sort(([a, ], [b, ]) => a.top - b.top || a.left - b.left);
    if (chart.dataset.roving !== "grid") order.sort(([a, ], [b, ]) => a.left - b.left || a.top - b.top);
    const sorted = order.map(([, mark]) => mark);
    sorted[0].tabIndex = 0;
    const columns = Number(chart.dataset.columns) || 1;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -Infinity, End: Infinity };
    chart.addEventListener("keydown", (event) => {
      const at = sorted.indexOf(document.activeElement);
      if (at < 0 || !(event.key in steps)) return;
      event.preventDefault();
      const next = Math.min(Math.max(at + steps[event.key], 0), sorted.length - 1);
      sorted[at].tabIndex = -1;
      sorted[next].tabIndex = 0;
      sorted[next].focus();
    });
  }

  // Copying: pages of files may not have the clipboard; then the text is selected and copied as a reader would.
  const copy = async (element) => {
    try {
      await navigator.clipboard.writeText(element.textContent);
      return true;
    } catch {
      const selection = getSelection();
      selection.selectAllChildren(element);
      const done = document.execCommand("copy");
      selection.removeAllRanges();
      return done;
    }
  };
  for (const button of all("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const done = await copy(document.getElementById(button.dataset.copy));
      button.textContent = done ? "Copied" : "Select and copy it";
      said.textContent = done ? "Copied" : "Not copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
  for (const button of all("[data-download]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const text = document.getElementById(button.dataset.source).textContent;
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: button.dataset.type || "application/json" }));
      link.download = button.dataset.download;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }
{% include "study.js" %}
})();
