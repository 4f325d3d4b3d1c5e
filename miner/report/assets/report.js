// Marks of pairs: kept in the browser, and given out as the table that `miner eval bitext --gold` reads.
"use strict";
(() => {
  const form = document.querySelector("#marks");
  if (!form) return;
  const pairs = [...form.querySelectorAll(".pair")];
  const place = "miner marks " + form.dataset.key;

  const marked = () => pairs.map((pair) => pair.querySelector("input:checked")?.value ?? "");

  function show() {
    const count = marked().filter(Boolean).length;
    form.querySelector("output").textContent = `${count} of ${pairs.length} marked`;
    form.querySelector("#download").disabled = count === 0;
  }

  function keep() {
    try {
      localStorage.setItem(place, JSON.stringify(marked()));
    } catch {
      // Without storage, marks last as long as the page.
    }
  }

  function recall() {
    try {
      const kept = JSON.parse(localStorage.getItem(place) ?? "[]");
      pairs.forEach((pair, row) => {
        for (const input of pair.querySelectorAll("input")) input.checked = input.value === kept[row] && input.value !== "";
      });
    } catch {
      // As above.
    }
  }

  function table() {
    const marks = marked();
    const rows = pairs.map((pair, row) => [marks[row], ...[...pair.querySelectorAll(".text")].map((text) => text.textContent)]);
    return [["mark", "source", "target"], ...rows.filter((row) => row[0])].map((row) => row.join("\t") + "\n").join("");
  }

  function download() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([table()], { type: "text/tab-separated-values;charset=utf-8" }));
    link.download = "marks.tsv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  function forget() {
    for (const input of form.querySelectorAll("input")) input.checked = false;
    keep();
    show();
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => (keep(), show()));
  form.querySelector("#download").addEventListener("click", download);
  form.querySelector("#forget").addEventListener("click", forget);
  recall();
  show();
})();
