
  // A study's table: filters, sorting, and saving what is shown.
  const table = document.getElementById("table");
  if (table) {
    const rows = all("tbody tr", table);
    const form = document.getElementById("filters");
    const names = all("thead th", table).map((each) => each.textContent.trim());
    const inputs = new Map(rows.map((row) => [row, JSON.parse(row.dataset.inputs)]));
    const marks = all("[data-key]").filter((each) => !table.contains(each));
    form.hidden = false;
    const wanted = () => {
      const selects = all("select[data-filter]", form).filter((each) => each.value);
      const front = document.getElementById("only-front").checked;
      const text = document.getElementById("find").value.trim().toLowerCase();
      return (row) => selects.every((each) => each.dataset.filter === "status"
        ? row.dataset.status === each.value
        : inputs.get(row)[names.indexOf(each.dataset.filter) - 1] === each.value)
        && (!front || "front" in row.dataset)
        && (!text || row.querySelector(".of-layout").textContent.toLowerCase().includes(text));
    };
    const filter = () => {
      const keep = wanted();
      const out = new Set();
      for (const row of rows) {
        row.hidden = !keep(row);
        if (row.hidden) out.add(row.dataset.key);
      }
      for (const mark of marks) mark.classList.toggle("out", out.has(mark.dataset.key));
      document.getElementById("shown").textContent = `${rows.length - out.size} of ${rows.length}`;
    };
    form.addEventListener("input", filter);
    form.addEventListener("reset", () => setTimeout(filter));
    form.addEventListener("submit", (event) => event.preventDefault());
    filter();

    const valueOf = (cell) => {
      const data = cell.querySelector("data");
      const text = cell.textContent.trim();
      if (data) return Number(data.value);
      const number = Number.parseFloat(text);
      const scale = { k: 1e3, K: 1e3, M: 1e6, B: 1e9, T: 1e12 }[text.replace(/^[-\d.,]+/, "")[0]] || 1;
      return Number.isNaN(number) ? text : number * scale;
    };
    const compare = (a, b) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
    };
    all("th[data-sort]", table).forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      heading.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = heading.getAttribute("aria-sort") === "ascending";
        all("th[aria-sort]", table).forEach((each) => each.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", down ? "descending" : "ascending");
        const sorted = rows.map((row) => [valueOf(row.cells[column]), row]);
        sorted.sort(([a, ], [b, ]) => (a === "" || b === "" ? compare(a, b) : (down ? -1 : 1) * compare(a, b)));
        table.tBodies[0].append(...sorted.map(([, row]) => row));
      });
    });

    document.getElementById("save-csv").addEventListener("click", () => {
      const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
      const cellText = (cell) => (cell.querySelector("data") || {}).value || cell.firstChild?.textContent.trim() || "";
      const lines = [names, ...all("tbody tr", table).filter((row) => !row.hidden).map((row) => Array.from(row.cells, cellText))];
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([lines.map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n"], { type: "text/csv" }));
      link.download = "scenarios.csv";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }
