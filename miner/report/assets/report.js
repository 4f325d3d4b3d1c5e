// Marks of pairs, by mouse or keys: stored in the browser, and downloaded as the table that `--gold` reads.
"use strict";
(() => {
  const form = document.querySelector("#marks");
  if (!form) return;
  const marksByKey = { 1: "right", 2: "wrong", 3: "unsure" };
  const pairs = [...form.querySelectorAll(".pair")];
  const storageKey = "miner marks " + form.dataset.key;

  const readMarks = () => pairs.map((pair) => pair.querySelector("input:checked")?.value ?? "");

  function showCount() {
    const count = readMarks().filter(Boolean).length;
    form.querySelector("output").textContent = `${count} of ${pairs.length} marked`;
    form.querySelector("#download").disabled = count === 0;
  }

  function store() {
    try {
      localStorage.setItem(storageKey, JSON.stringify(readMarks()));
    } catch {
      // Without storage, marks last as long as the page.
    }
  }

  function restore() {
    try {
      const marks = JSON.parse(localStorage.getItem(storageKey) ?? "[]");
      pairs.forEach((pair, row) => {
        for (const input of pair.querySelectorAll("input")) input.checked = input.value === marks[row];
      });
    } catch {
      // As above.
    }
  }

  function table() {
    const marks = readMarks();
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

  function clear() {
    for (const input of form.querySelectorAll("input")) input.checked = false;
    store();
    showCount();
  }

  // Without a focused pair, a key only moves to the next pair: nobody marks a pair out of sight.
  function markByKey(event) {
    const mark = marksByKey[event.key];
    if (!mark || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const row = pairs.indexOf(document.activeElement.closest(".pair"));
    if (row >= 0) {
      pairs[row].querySelector(`input[value=${mark}]`).checked = true;
      store();
      showCount();
    }
    const next = [...pairs.slice(row + 1), ...pairs.slice(0, row + 1)].find((pair) => !pair.querySelector("input:checked"));
    next?.focus({ preventScroll: true });
    next?.scrollIntoView({ block: "center" });
  }

  document.addEventListener("keydown", markByKey);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => (store(), showCount()));
  form.querySelector("#download").addEventListener("click", download);
  form.querySelector("#clear").addEventListener("click", clear);
  restore();
  showCount();
})();
