// Elements. Names of the world reach the page as text only.

const {PI, abs, ceil, exp, expm1, floor, log, log1p, log2, max, min, round} = Math;

function el(kind, ...parts) {
	const [tag, style] = kind.split("."), made = document.createElement(tag), [first] = parts;
	if (style) made.className = style;
	if (first?.constructor === Object) {
		parts.shift();
		for (const [name, value] of Object.entries(first)) {
			if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
			else if (name === "key") made.dataset.key = value;
			else if (value !== false && value !== undefined) made.setAttribute(name, value === true ? "" : value);
		}
	}
	made.append(...parts.flat().filter((part) => part || part === 0));
	return made;
}

const range = (n) => [...Array(n).keys()];
const zeros = (n) => new Float64Array(n);
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const evened = (weights) => {const total = sum(weights); return weights.map((w) => w / total);};

function short(x) {
	if (isNaN(x ?? NaN)) return "–";
	if (!isFinite(x)) return x > 0 ? "∞" : "−∞";
	const size = abs(x), text = size && (size < 1e-4 || size >= 1e7) ? x.toExponential(4) : String(+x.toPrecision(Number.isInteger(x) ? 8 : 5));
	return text.replaceAll("-", "−");
}

// A number that is copied with all its digits; rounded values have seven.
const num = (x) => {
	const value = num.rounded ? +(+x).toPrecision(7) : x;
	return el("data", {value, title: value}, short(x));
};

const percent = (x) => `${short(+(100 * x).toFixed(abs(x) > 0.0995 ? 0 : 1))}\u00a0%`;

function bar(share, fill = "", left = 0, kind = "") {
	const made = el("span", {class: `fill ${fill}`});
	Object.assign(made.style, {width: `${100 * max(0, min(1, share || 0))}%`, marginLeft: `${100 * left}%`});
	return el("span", {class: `bar ${kind}`, "aria-hidden": "true"}, made);
}

function signed(value, most) {
	const width = most ? abs(value) / most / 2 : 0;
	return value < 0 ? bar(width, "against", 0.5 - width, "middle") : bar(width, "", 0.5, "middle");
}

// Columns have a head, and a function from items to cells unless they are left out.
function table(caption, columns, items) {
	const shown = columns.filter(([, cell]) => cell), row = (item, i) => el("tr", shown.map(([head, cell], k) => el(k ? "td" : "th", k ? {"data-head": head} : {scope: "row"}, cell(item, i))));
	return el("div.wide", {tabindex: "0", role: "region", "aria-label": caption}, el(shown.length > 4 ? "table.many" : "table", el("caption", caption),
		el("thead", el("tr", shown.map(([head]) => el("th", {scope: "col"}, head)))), el("tbody", items.map(row))));
}

const numbers = (head, of) => [head, of && ((item, i) => num(of(item, i)))];
const bars = (of) => ["", (item, i) => bar(of(item, i))];
const chances = (head, of, kind) => [head, of && ((item, i) => [num(of(item, i)), bar(of(item, i), kind)])];

const button = (text, onclick, attributes = {}) => el("button", {type: "button", onclick, ...attributes}, text);

const field = (label, ...children) => el("label.field", el("span", label), children);

const entry = (label, type, key, value, change) => field(label, el("input", {type, key, value, min: 0, step: "any", onchange: (e) => change(e.target.value)}));

function choice(label, options, value, choose) {
	const onchange = ({target: {selectedIndex}}) => choose(options[selectedIndex][0]);
	return field(label, el("select", {key: label, onchange}, options.map(([id, text]) => el("option", {selected: id === value}, text))));
}

const note = (...text) => el("p.note", text);
