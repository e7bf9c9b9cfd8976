// Elements of the page. Names of the world reach it as text only.

export function el(tag, attributes = {}, ...children) {
	const made = document.createElement(tag);
	for (const [name, value] of Object.entries(attributes)) {
		if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
		else if (name === "key") made.dataset.key = value;
		else if (value !== false && value !== undefined) made.setAttribute(name, value === true ? "" : value);
	}
	made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
	return made;
}

export const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

export function short(x) {
	if (x === null || x === undefined || Number.isNaN(x)) return "–";
	if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
	const size = Math.abs(x), text = size && (size < 1e-4 || size >= 1e7) ? x.toExponential(4) : String(+x.toPrecision(Number.isInteger(x) ? 8 : 5));
	return text.replaceAll("-", "−");
}

// A number that is copied with all its digits.
export const num = (x) => el("data", { value: x, title: x }, short(x));

export const percent = (x) => `${(100 * x).toFixed(x > 0.0995 || x === 0 ? 0 : 1)} %`;

function filled(kind, fill, left, width) {
	const made = el("span", { class: `fill ${fill}` });
	Object.assign(made.style, { width: `${width}%`, marginLeft: `${left}%` });
	return el("span", { class: `bar ${kind}`, "aria-hidden": "true" }, made);
}

export const bar = (share, fill = "") => filled("", fill, 0, 100 * Math.max(0, Math.min(1, share || 0)));

// A bar to the left or right of the middle.
export function signed(value, most) {
	const width = most ? 50 * Math.min(1, Math.abs(value) / most) : 0;
	return filled("middle", value < 0 ? "against" : "", value < 0 ? 50 - width : 50, width);
}

const cells = (row) => row.map((cell, i) => el(i ? "td" : "th", i ? {} : { scope: "row" }, cell));

export function table(caption, heads, rows) {
	return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption }, el("table", {},
		el("caption", {}, caption), el("thead", {}, el("tr", {}, heads.map((text) => el("th", { scope: "col" }, text)))),
		el("tbody", {}, rows.map((row) => el("tr", {}, cells(row))))));
}

export const button = (text, onclick, attributes = {}) => el("button", { type: "button", onclick, ...attributes }, text);

export const field = (label, ...children) => el("label", { class: "field" }, el("span", {}, label), children);

export function choice(label, options, value, onchange, key) {
	return field(label, el("select", { key, onchange: (event) => onchange(Number.isNaN(+event.target.value) ? event.target.value : +event.target.value) },
		options.map(([id, text]) => el("option", { value: id, selected: id === value }, text))));
}

export const note = (...text) => el("p", { class: "note" }, text);
