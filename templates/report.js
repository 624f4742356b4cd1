"use strict";
// Sorts the trials table, copies the data and opens folded parts for printing. The report is complete without it.
(() => {
  const value = (cell) => {
    const raw = cell.dataset.value;
    if (raw !== undefined) return Number(raw);
    if (cell.classList.contains("absent")) return null;
    const text = cell.textContent.trim();
    const number = Number(text.replace(/,/g, ""));
    return cell.classList.contains("number") && text !== "" && !Number.isNaN(number) ? number : text.toLowerCase();
  };
  // What was not measured stays at the end in both directions.
  const order = (a, b, sign) => {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => [value(row.cells[column]), row]);
        rows.sort((a, b) => order(a[0], b[0], sign));
        body.append(...rows.map(([, row]) => row));
      });
    });
  }

  const button = document.getElementById("copy-json");
  const said = document.getElementById("copied");
  const fallback = (text) => {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("the browser refused");
  };
  button.hidden = false;
  button.addEventListener("click", async () => {
    const text = JSON.stringify(JSON.parse(document.getElementById("report-data").textContent), null, 2);
    try {
      if (navigator.clipboard) await navigator.clipboard.writeText(text);
      else fallback(text);
      said.textContent = "Copied";
    } catch (error) {
      said.textContent = `Not copied: ${error.message}`;
    }
  });

  const opened = new Set();
  window.addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("#findings details:not([open])")) {
      part.open = true;
      opened.add(part);
    }
  });
  window.addEventListener("afterprint", () => {
    opened.forEach((part) => { part.open = false; });
    opened.clear();
  });
})();
