// Elements of the page. Names of the world reach it as text only.

export const {PI, abs, ceil, exp, expm1, floor, log, log1p, log2, max, min, round} = Math;

export function el(kind, ...parts) {
	const [tag, style] = kind.split("."), made = document.createElement(tag), [first] = parts;
	if (style) made.className = style;
	if (first?.constructor === Object) {
		for (const [name, value] of Object.entries(parts.shift())) {
			if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
			else if (name === "key") made.dataset.key = value;
			else if (value !== false && value !== undefined) made.setAttribute(name, value === true ? "" : value);
		}
	}
	made.append(...parts.flat().filter((part) => ![null, undefined, false].includes(part)));
	return made;
}

export const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

export function short(x) {
	if (x === null || x === undefined || isNaN(x)) return "–";
	if (!isFinite(x)) return x > 0 ? "∞" : "−∞";
	const size = abs(x), text = size && (size < 1e-4 || size >= 1e7) ? x.toExponential(4) : String(+x.toPrecision(Number.isInteger(x) ? 8 : 5));
	return text.replaceAll("-", "−");
}

// A number that is copied with all its digits.
export const num = (x) => el("data", {value: x, title: x}, short(x));

export const percent = (x) => `${short(+(100 * x).toFixed(abs(x) > 0.0995 ? 0 : 1))} %`;

function filled(kind, fill, left, width) {
	const made = el("span", {class: `fill ${fill}`});
	Object.assign(made.style, {width: `${width}%`, marginLeft: `${left}%`});
	return el("span", {class: `bar ${kind}`, "aria-hidden": "true"}, made);
}

export const bar = (share, fill = "") => filled("", fill, 0, 100 * max(0, min(1, share || 0)));
export function signed(value, most) {
	const width = most ? 50 * min(1, abs(value) / most) : 0;
	return filled("middle", value < 0 ? "against" : "", value < 0 ? 50 - width : 50, width);
}

const cells = (row) => row.map((cell, i) => el(i ? "td" : "th", i ? {} : {scope: "row"}, cell));

export function table(caption, heads, rows) {
	return el("div.wide", {tabindex: "0", role: "region", "aria-label": caption}, el("table", {},
		el("caption", caption), el("thead", el("tr", heads.map((text) => el("th", {scope: "col"}, text)))),
		el("tbody", rows.map((row) => el("tr", cells(row))))));
}

export const button = (text, onclick, attributes = {}) => el("button", {type: "button", onclick, ...attributes}, text);

export const field = (label, ...children) => el("label.field", el("span", label), children);

export function choice(label, options, value, onchange, key) {
	return field(label, el("select", {key, onchange: (e) => onchange(isNaN(+e.target.value) ? e.target.value : +e.target.value)},
		options.map(([id, text]) => el("option", {value: id, selected: id === value}, text))));
}

export const note = (...text) => el("p.note", text);
