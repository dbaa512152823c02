
"use strict";
// Without this script the page reads the same: it adds values under the pointer, order and filters.
(() => {
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const tip = document.getElementById("tip");
  const rowsOf = new Map(all("table").map((table) => [table, [...table.tBodies[0].rows]]));
  let lit = null;

  // Charts: a mark names the row and the columns of its values in the table beside it.
  const words = (mark) => {
    const table = mark.closest("figure").querySelector("table");
    const row = rowsOf.get(table)[mark.dataset.r];
    const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    const [first, last] = (mark.dataset.c || `1-${heads.length - 1}`).split("-").map(Number);
    const lines = [`${heads[0]} ${row.cells[0].textContent}`];
    for (let i = first; i <= (last || first); i++) lines.push(`${heads[i]}: ${row.cells[i].textContent}`);
    return lines.join("\n");
  };
  const hide = () => {
    if (lit) lit.classList.remove("on");
    lit = null;
    tip.hidden = true;
  };
  const show = (mark, x, y) => {
    if (mark !== lit) {
      hide();
      lit = mark;
      mark.classList.add("on");
      tip.textContent = words(mark);
    }
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18}px`;
  };
  for (const chart of all(".pictures svg")) {
    chart.tabIndex = 0;
    const find = (event) => {
      const mark = event.target.closest("[data-r]");
      if (mark) show(mark, event.clientX, event.clientY);
      else hide();
    };
    chart.addEventListener("pointermove", find);
    chart.addEventListener("pointerdown", find);
    chart.addEventListener("pointerleave", hide);
    chart.addEventListener("blur", hide);
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      const marks = all("[data-r]", chart);
      const at = marks.indexOf(lit);
      const next = marks[at < 0 ? 0 : (at + step + marks.length) % marks.length];
      const box = next.getBoundingClientRect();
      show(next, box.left + box.width / 2, box.top + box.height / 2);
    });
  }
  // Keys that move the page go on from the mark where they were.
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // Tables: a click on a column's head orders by it; what is unknown stays last.
  const names = new Intl.Collator(undefined, { numeric: true });
  const value = (row, column, isNumber) => {
    const text = row.cells[column].textContent.trim();
    return isNumber ? parseFloat(text) : text;
  };
  const compare = (a, b) => (typeof a === "string" ? names.compare(a, b) : a - b);
  for (const [table, rows] of rowsOf) {
    if (rows.length < 2 || table.dataset.sorts === undefined) continue;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const isNumber = head.classList.contains("n");
        const down = head.getAttribute("aria-sort") === (isNumber ? "descending" : "ascending");
        const sign = down === isNumber ? 1 : -1;
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
        const keyed = rows.map((row) => [value(row, column, isNumber), row]);
        const known = keyed.filter(([key]) => key === key && key !== "–");
        const unknown = keyed.filter(([key]) => !(key === key && key !== "–"));
        known.sort(([a], [b]) => sign * compare(a, b));
        table.tBodies[0].append(...[...known, ...unknown].map(([, row]) => row));
      });
    });
  }

  // The filter: rows and pictures of one client, of one class; marks of others fade.
  const form = document.getElementById("filter");
  const told = form.querySelector("output");
  const has = (element, name, wanted) =>
    !wanted || element.dataset[name] === undefined || element.dataset[name].split(" ").includes(wanted);
  const apply = () => {
    hide();
    const client = form.elements.client;
    const kind = form.elements.class;
    for (const element of all("[data-clients], [data-classes]")) {
      element.hidden = !(has(element, "clients", client.value) && has(element, "classes", kind.value));
    }
    for (const mark of all("[data-r]")) {
      const row = rowsOf.get(mark.closest("figure").querySelector("table"))[mark.dataset.r];
      mark.classList.toggle("dim", row.hidden || !has(mark, "of", kind.value));
    }
    const shown = [client, kind]
      .filter((select) => select.value)
      .map((select) => `${select.name} ${select.selectedOptions[0].textContent}`);
    told.textContent = shown.length ? `Shown: ${shown.join(", ")}${missing(client, kind)}` : "";
  };
  // Where nothing is left of a table, it says why.
  const missing = (client, kind) => {
    const known = [...document.querySelector("#clients tbody").rows];
    if (known.some((row) => !row.hidden)) return "";
    const [one, other] = [client, kind].map((select) => select.selectedOptions[0].textContent);
    return client.value ? `. Client ${one} has no class ${other}.` : `. No client has class ${other}.`;
  };
  form.hidden = false;
  form.addEventListener("change", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply));
})();
