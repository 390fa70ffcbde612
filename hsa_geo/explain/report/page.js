"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const array = (text, Type) => new Type(bytes(text).buffer);
  const level = array(data.level, Uint16Array), size = array(data.size, Uint32Array);
  const first = array(data.first, Uint32Array), leaves = array(data.leaves, Uint32Array);
  const nameOf = array(data.name, Uint32Array);
  const views = data.views.map((view) => ({
    top: view.top, sums: array(view.sums, Int16Array), shades: array(view.shades, Int8Array),
  }));
  const matrices = bytes(data.matrices);
  const parent = new Int32Array(size.length).fill(-1);
  for (let a = 0; a < size.length; a++)
    for (let b = a + 1; b < a + size[a]; b += size[b]) parent[b] = a;

  // The leaves in reading order: an element for each, a picture for all of its leaves.
  const shown = [];
  for (const e of document.querySelectorAll("#page i, #page figure"))
    for (let n = e.tagName === "I" ? 1 : +e.dataset.count; n > 0; n--) shown.push(e);
  const placeOfLeaf = [];
  for (let a = 0; a < size.length; a++) if (size[a] === 1) placeOfLeaf.push(a);

  let view = 0, selected = 0, limits = new Map();
  const open = new Set([0]);
  const title = (a) => {
    if (size[a] > 1) return data.names[nameOf[a]];
    const e = shown[first[a]];
    return e.tagName === "I" ? e.textContent : `patch ${nameOf[a]}`;
  };
  const amount = (a) => (views[view].sums[a] / 32767) * views[view].top;
  const digits = () => Math.max(0, Math.min(9, 2 - Math.floor(Math.log10(views[view].top))));
  const written = (x) => {
    const text = Math.abs(x).toFixed(digits());
    return (+text ? (x > 0 ? "+" : "−") : "") + text;
  };

  // Shading ////////////////////////////////////////////////////////////////
  const css = getComputedStyle(document.documentElement);
  function shade() {
    const shades = views[view].shades;
    for (let k = 0; k < shown.length; k++) {
      if (shown[k].tagName !== "I") continue;
      const s = shades[k], now = s ? (s > 0 ? "p" : "n") + Math.abs(s) : "";
      const other = shown[k].className.replace(/\b[pn]\d\b/, "").trim();
      shown[k].className = [now, other].filter(Boolean).join(" ");
    }
    paint();
  }
  function paint() {
    const shades = views[view].shades;
    data.pictures.forEach(([start, count, width, height], number) => {
      const canvas = document.querySelector(`[data-picture="${number}"] canvas`);
      const brush = canvas.getContext("2d"), boxes = array(data.boxes[number], Uint16Array);
      brush.clearRect(0, 0, width, height);
      for (let k = 0; k < count; k++) {
        const s = shades[start + k];
        if (!s) continue;
        const [top, left, bottom, right] = boxes.subarray(4 * k, 4 * k + 4);
        brush.fillStyle = `rgba(${css.getPropertyValue(s > 0 ? "--pos" : "--neg")}, ${Math.abs(s) / 12})`;
        brush.fillRect(left, top, right - left, bottom - top);
      }
    });
  }

  // Tree ///////////////////////////////////////////////////////////////////
  const tree = $("tree"), more = 200;
  function row(a) {
    const item = document.createElement("li"), inner = size[a] > 1;
    item.setAttribute("role", "treeitem");
    item.setAttribute("aria-level", level[a] + 1);
    item.setAttribute("aria-selected", a === selected);
    if (inner) item.setAttribute("aria-expanded", open.has(a));
    item.tabIndex = a === selected ? 0 : -1;
    item.dataset.place = a;
    item.style.paddingLeft = Math.min(level[a], 30) + "em";
    const parts = [inner ? (open.has(a) ? "▾" : "▸") : "", title(a), written(amount(a))];
    ["mark", "name", "sum"].forEach((kind, k) => {
      const part = document.createElement("span");
      part.className = kind;
      part.textContent = parts[k];
      item.append(part);
    });
    const s = Math.round((9 * views[view].sums[a]) / 32767);
    if (s) item.lastChild.classList.add((s > 0 ? "p" : "n") + Math.abs(s));
    return item;
  }
  function draw() {
    const out = document.createDocumentFragment(), stack = [0];
    while (stack.length) {
      const a = stack.pop();
      if (a < 0) {
        const item = document.createElement("li"), button = document.createElement("button");
        const hidden = ~a;
        button.textContent = "show more";
        button.dataset.more = hidden;
        item.setAttribute("role", "none");
        item.append(button);
        out.append(item);
        continue;
      }
      out.append(row(a));
      if (!open.has(a)) continue;
      const below = [], limit = limits.get(a) || more;
      for (let b = a + 1; b < a + size[a]; b += size[b]) {
        if (below.length === limit) { below.push(~a); break; }
        below.push(b);
      }
      stack.push(...below.reverse());
    }
    tree.replaceChildren(out);
  }
  const item = (a) => tree.querySelector(`[data-place="${a}"]`);
  function select(a, focus, still) {
    for (let up = parent[a], kid = a; up >= 0; kid = up, up = parent[up]) {
      open.add(up);
      let number = 0;
      for (let b = up + 1; b < kid; b += size[b]) number++;
      if (number >= (limits.get(up) || more)) limits.set(up, number + more);
    }
    selected = a;
    draw();
    if (focus) item(a).focus();
    if (!still) item(a).scrollIntoView({ block: "nearest" });
    document.querySelectorAll("#page .here").forEach((e) => e.classList.remove("here"));
    const last = Math.min(first[a] + leaves[a], first[a] + 2000);
    if (a) for (let k = first[a]; k < last; k++) shown[k].classList.add("here");
    matrix();
  }
  function toggle(a, wanted) {
    if (size[a] === 1) return;
    if (wanted) open.add(a); else open.delete(a);
    draw();
    item(a).focus();
  }
  tree.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-more]");
    if (button) {
      const a = +button.dataset.more;
      limits.set(a, (limits.get(a) || more) + more);
      draw();
      return;
    }
    const at = event.target.closest("[role=treeitem]");
    if (!at) return;
    const a = +at.dataset.place, was = open.has(a);
    select(a, true);
    toggle(a, !was);
  });
  tree.addEventListener("keydown", (event) => {
    const at = event.target.closest("[role=treeitem]");
    if (!at) return;
    const a = +at.dataset.place, rows = [...tree.querySelectorAll("[role=treeitem]")];
    const k = rows.indexOf(at), go = (e) => e && select(+e.dataset.place, true);
    const keys = {
      ArrowDown: () => go(rows[k + 1]), ArrowUp: () => go(rows[k - 1]),
      Home: () => go(rows[0]), End: () => go(rows[rows.length - 1]),
      ArrowRight: () => (size[a] === 1 ? 0 : open.has(a) ? go(rows[k + 1]) : toggle(a, true)),
      ArrowLeft: () => (open.has(a) && size[a] > 1 ? toggle(a, false) : parent[a] >= 0 && select(parent[a], true)),
      Enter: () => toggle(a, !open.has(a)), " ": () => toggle(a, !open.has(a)),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  $("page").addEventListener("click", (event) => {
    const e = event.target.closest("i, figure");
    if (!e) return;
    const leaf = placeOfLeaf[shown.indexOf(e)];
    select(e.tagName === "I" ? leaf : parent[leaf] < 0 ? leaf : parent[leaf], false);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("button[data-go]");
    if (!link) return;
    select(+link.dataset.go, false);
    shown[first[selected]].scrollIntoView({ block: "center" });
  });

  // Attention among siblings ///////////////////////////////////////////////
  const starts = new Map();
  let at = 0;
  for (const [above, members] of data.groups) {
    starts.set(above, [at, members]);
    at += data.layers * data.heads * members.length * (members.length + 1);
  }
  function matrix() {
    const box = $("matrix");
    if (!box) return;
    box.replaceChildren();
    let a = selected;
    if (size[a] === 1 && parent[a] >= 0) a = parent[a];
    while (!starts.has(a) && size[a] > 1 && size[a + 1] === size[a] - 1) a++; // single children
    const found = starts.get(a), heading = document.createElement("p");
    heading.className = "note";
    box.append(heading);
    if (!found) {
      heading.textContent = `The attention among the children of “${title(a)}” is not in this report.`;
      return;
    }
    const [start, members] = found, m = members.length;
    const number = +$("layer").value * data.heads + +$("head").value;
    const values = matrices.subarray(start + number * m * (m + 1));
    heading.textContent = `Among the children of “${title(a)}”: where the attention of a row goes, in percent.`;
    const table = document.createElement("table"), head = table.insertRow();
    const cell = (line, text, kind) => {
      const c = document.createElement(kind || "td");
      c.textContent = text;
      c.title = text;
      line.append(c);
      return c;
    };
    cell(head, "", "th");
    members.forEach((b) => cell(head, title(b), "th").setAttribute("scope", "col"));
    cell(head, "others", "th");
    members.forEach((b, r) => {
      const line = table.insertRow();
      cell(line, title(b), "th").setAttribute("scope", "row");
      for (let c = 0; c <= m; c++) {
        const share = (values[r * (m + 1) + c] / 255) ** 2;
        const part = cell(line, (100 * share).toFixed(share < 0.1 ? 1 : 0));
        part.className = share > 0.02 ? "p" + Math.min(9, Math.ceil(9 * share)) : "";
      }
    });
    box.append(table);
  }

  $("view").addEventListener("change", (event) => {
    view = +event.target.value;
    shade();
    draw();
  });
  for (const id of ["layer", "head"]) if ($(id)) $(id).addEventListener("change", matrix);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  paint(); // the words came shaded
  // At first what is answered for, with the way from there to what matters most, as far as it fits.
  for (let a = data.start, rows = 0; size[a] > 1; ) {
    const below = [];
    for (let b = a + 1; b < a + size[a]; b += size[b]) below.push(b);
    rows += below.length;
    if (rows > 16 && a !== data.start) break;
    open.add(a);
    a = below.reduce((best, b) => (Math.abs(amount(b)) > Math.abs(amount(best)) ? b : best));
  }
  select(data.start, false, true);
  document.documentElement.dataset.ready = "true";
})();
