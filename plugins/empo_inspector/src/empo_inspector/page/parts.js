// Elements of the page. Names of the world reach it as text only.

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "key") made.dataset.key = value;
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export function short(x) {
  if (x === undefined || x === null || Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const size = Math.abs(x);
  let text = size !== 0 && (size < 1e-4 || size >= 1e7) ? x.toExponential(4) : String(Number(x.toPrecision(5)));
  if (Number.isInteger(x) && size < 1e7) text = String(x);
  return text.replace("-", "−").replace("e−", "e-").replace("e-", "e−");
}

// A number that is copied with all its digits.
export function num(x) { return el("data", { value: String(x), title: String(x) }, short(x)); }

export function percent(x) { return `${(100 * x).toFixed(x > 0.0995 || x === 0 ? 0 : 1)} %`; }

export function bar(share, kind = "") {
  const fill = el("span", { class: `fill ${kind}` });
  fill.style.width = `${Math.max(0, Math.min(1, share || 0)) * 100}%`;
  return el("span", { class: "bar", "aria-hidden": "true" }, fill);
}

// A bar to the left or right of the middle.
export function signed(value, most) {
  const share = most ? Math.min(1, Math.abs(value) / most) * 50 : 0;
  const fill = el("span", { class: value < 0 ? "fill against" : "fill" });
  fill.style.width = `${share}%`;
  fill.style.marginLeft = value < 0 ? `${50 - share}%` : "50%";
  return el("span", { class: "bar middle", "aria-hidden": "true" }, fill);
}

export function table(caption, heads, rows, attributes = {}) {
  const head = el("tr", {}, heads.map((text) => el("th", { scope: "col" }, text)));
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    el("table", attributes, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, rows.map(
      (row) => row instanceof Node ? row : el("tr", {}, row.map((cell, i) => el(i ? "td" : "th", i ? {} : { scope: "row" }, cell)))))));
}

export function button(text, onclick, attributes = {}) {
  return el("button", { type: "button", onclick, ...attributes }, text);
}

export function choice(label, options, value, onchange, key) {
  const box = el("select", { key, onchange: (event) => onchange(event.target.value) },
    options.map(([id, text]) => el("option", { value: id, selected: String(id) === String(value) }, text)));
  return el("label", { class: "field" }, el("span", {}, label), box);
}

export function note(text) { return el("p", { class: "note" }, text); }
