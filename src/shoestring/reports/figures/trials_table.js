"use strict";
(() => {
  const STEP = 100;  // rows that are shown at first, and with each press of the button
  const OPERATORS = {
    "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
    "=": (a, b) => a === b, "!=": (a, b) => a !== b,
  };
  const chosen = { column: null, descending: false, filter: "", rows: STEP, open: true };  // kept when the page is updated
  let table = null;
  let focus = null;

  const toNumber = text => text.trim() === "" ? NaN : Number(text);
  const valueOf = cell => cell.dataset.v ?? cell.textContent;

  // a filter ----------------------------------------------------------------------------------------------------------

  /** Return the column that is meant by a name or by its beginning; -1 if there is none. */
  const findColumn = name => {
    const wanted = name.toLowerCase(), names = table.names.map(one => one.toLowerCase());
    const exact = names.indexOf(wanted);
    return exact >= 0 ? exact : names.findIndex(one => wanted && one.startsWith(wanted));
  };

  /** Return the tests of a filter such as `adam lr<0.01 "weight decay">=1e-4`, and the names that no column has. */
  const readFilter = text => {
    const tests = [], unknown = [];
    for (const word of text.match(/(?:"[^"]*"|[^\s"])+/g) ?? []) {
      const found = word.replaceAll('"', "").match(/^([^<>=!]+)(<=|>=|!=|<|>|=)(.*)$/s);
      if (!found) {
        const part = word.replaceAll('"', "").toLowerCase();
        tests.push(row => row.text.includes(part));
        continue;
      }
      const [, name, operator, wanted] = found;
      const column = findColumn(name), compare = OPERATORS[operator], number = toNumber(wanted);
      if (column < 0) { unknown.push(name); continue; }
      if (wanted === "") continue;  // the reader is still typing
      tests.push(row => {
        const value = valueOf(row.element.cells[column]), own = toNumber(value);
        if (value === "") return operator === "!=";
        if (!Number.isNaN(number) && !Number.isNaN(own)) return compare(own, number);
        return (operator === "=" || operator === "!=") && compare(value.toLowerCase(), wanted.toLowerCase());
      });
    }
    return { tests, unknown };
  };

  // sorting -----------------------------------------------------------------------------------------------------------

  /** Return the rows in the chosen order: numbers before texts, and rows without a value last. */
  const sort = rows => {
    if (chosen.column === null) return rows;
    const column = table.names.indexOf(chosen.column), sign = chosen.descending ? -1 : 1;
    if (column < 0) return rows;
    const keyed = rows.map(row => {
      const text = valueOf(row.element.cells[column]), number = toNumber(text);
      return { row, text, number, kind: text === "" ? 2 : Number.isNaN(number) ? 1 : 0 };
    });
    keyed.sort((a, b) => {
      if (a.kind !== b.kind) return a.kind === 2 || b.kind === 2 ? a.kind - b.kind : sign * (a.kind - b.kind);
      if (a.kind === 0) return sign * (a.number - b.number);
      return a.kind === 1 ? sign * a.text.localeCompare(b.text) : 0;
    });
    return keyed.map(one => one.row);
  };

  const draw = () => {
    const { tests, unknown } = readFilter(chosen.filter);
    const kept = table.rows.filter(row => tests.every(test => test(row)));
    const sorted = sort(kept);
    table.body.replaceChildren(...sorted.slice(0, chosen.rows).map(row => row.element));
    table.heads.forEach((head, i) => {
      const isSorted = chosen.column === null ? head.dataset.ranked : table.names[i] === chosen.column;
      const descending = chosen.column === null ? head.dataset.ranked === "descending" : chosen.descending;
      head.setAttribute("aria-sort", isSorted ? (descending ? "descending" : "ascending") : "none");
    });
    const shown = Math.min(chosen.rows, kept.length);
    const count = kept.length === table.rows.length ? `${kept.length} trials` : `${kept.length} of ${table.rows.length} trials`;
    table.status.textContent = (unknown.length ? `no column ${unknown.join(", ")}; ` : "")
      + count + (shown < kept.length ? `, ${shown} shown` : "");
    table.more.hidden = shown === kept.length;
    table.more.textContent = `Show ${Math.min(STEP, kept.length - shown)} more`;
  };

  // the controls, which only a script can serve -------------------------------------------------------------------------

  const make = (tag, properties, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  const prepare = () => {
    const section = document.getElementById("trials");
    if (!section) { table = null; return; }
    const details = section.querySelector("details"), element = section.querySelector("table");
    const heads = [...element.tHead.rows[0].cells], body = element.tBodies[0];
    const rows = [...body.rows].map(row => ({
      element: row,
      get text() { return this.known ??= [...row.cells].map(cell => cell.textContent).join("\n").toLowerCase(); },
    }));
    const input = make("input", { type: "search", id: "trials-filter", value: chosen.filter, autocomplete: "off", spellcheck: false });
    const status = make("output", {});
    const more = make("button", { type: "button", className: "more" });
    const box = section.querySelector(".wide");
    table = { heads, names: heads.map(head => head.textContent), body, rows, input, status, more, box, details };
    heads.forEach((head, i) => {
      const button = make("button", { type: "button", textContent: table.names[i] });
      button.addEventListener("click", () => {
        chosen.descending = head.getAttribute("aria-sort") === "ascending";
        chosen.column = table.names[i];
        draw();
      });
      head.replaceChildren(button);
    });
    input.addEventListener("input", () => { chosen.filter = input.value; chosen.rows = STEP; draw(); });
    more.addEventListener("click", () => { chosen.rows += STEP; draw(); });
    details.addEventListener("toggle", () => { chosen.open = details.open; });
    const hint = make("small", { id: "trials-hint" }, "Text, or conditions such as ", make("code", {}, section.dataset.example));
    input.setAttribute("aria-describedby", hint.id);
    details.insertBefore(make("div", { className: "filter" }, make("label", { htmlFor: input.id }, "Filter"), input, hint, status), box);
    details.append(more);
    element.classList.add("ready");
    draw();
    details.open = chosen.open;  // only now: the rows that are not shown are not laid out
  };

  document.addEventListener("before-update", () => {
    focus = null;
    if (!table) return;
    const active = document.activeElement;
    const head = table.heads.findIndex(one => one.contains(active));
    if (active === table.input) focus = { input: [active.selectionStart, active.selectionEnd] };
    else if (head >= 0) focus = { head: table.names[head] };
    if (focus || table.box.scrollTop || table.box.scrollLeft) focus = { ...focus, scroll: [table.box.scrollLeft, table.box.scrollTop] };
  });
  document.addEventListener("after-update", () => {
    prepare();
    if (!table || !focus) return;
    if (focus.scroll) table.box.scrollTo(...focus.scroll);
    if (focus.input) { table.input.focus({ preventScroll: true }); table.input.setSelectionRange(...focus.input); }
    if (focus.head) table.heads[table.names.indexOf(focus.head)]?.firstElementChild.focus({ preventScroll: true });
  });
  prepare();
})();
