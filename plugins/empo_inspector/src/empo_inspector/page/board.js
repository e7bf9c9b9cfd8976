// The board: a state on a canvas, with a heat map; or its picture, or its text.

import T from "./texts.json" with {type: "json"};
import {abs, el, floor, max, min, PI, round} from "./parts.js";

const ARROWS = {forward: 0, right: 1, left: 3}, INK = "#262a33";

function heat(value) {
	const scale = value < 0 ? T.loss : T.scale, at = min(1, abs(value)) * 5, low = min(floor(at), 4);
	return scale[low].map((c, i) => round(c + (scale[low + 1][i] - c) * (at - low)));
}

const css = (rgb, alpha = 1) => `rgba(${rgb},${alpha})`;
const inkOn = ([r, g, b]) => 0.299 * r + 0.587 * g + 0.114 * b > 140 ? INK : "#fff";

export class Board {
	constructor(m) {
		const {picture} = m.header;
		Object.assign(this, {m, picture, shapes: new Map(), isGrid: picture.kind === "grid", cells: picture.width * picture.height});
		this.columns = new Map([...m.changes ?? []].map((cell, i) => [cell, i]));
	}
	thing(s, cell) {
		const {fixed, things} = this.m, column = this.columns.get(cell);
		return column === undefined ? fixed[cell] : things[s * this.columns.size + column];
	}

	ofAgent(name, s, i) {return this.m[name][s * this.m.agents.length + i];}

	at(cell) {return [cell % this.picture.width, floor(cell / this.picture.width)];}

	// Glyphs are SVG documents of few kinds of shapes; they are read as data and never shown as documents.
	shapesOf(glyph) {
		if (this.shapes.has(glyph)) return this.shapes.get(glyph);
		const root = new DOMParser().parseFromString(this.picture.glyphs[glyph][1], "image/svg+xml").documentElement;
		const found = [...root.children].map((node) => {
			const get = (name) => +node.getAttribute(name), path = new Path2D(), tag = node.tagName;
			if (tag === "circle") path.arc(get("cx"), get("cy"), max(0, get("r")), 0, 7);
			else if (tag === "rect") path.roundRect(get("x"), get("y"), get("width"), get("height"), get("rx"));
			else if (tag !== "text") (node.getAttribute("points") ?? "").split(" ").forEach((pair) => path.lineTo(...pair.split(",")));
			if (tag === "polygon") path.closePath();
			const text = tag === "text" && [node.textContent, get("x"), get("y")];
			const inks = ["stroke", "fill"].map((kind) => [kind, node.getAttribute(kind), node.getAttribute(`${kind}-opacity`) ?? 1]);
			return {path, text, inks: inks.filter(([, ink]) => ink && ink !== "none"), size: get("font-size"), width: get("stroke-width")};
		});
		this.shapes.set(glyph, [+root.getAttribute("width") || 96, found]);
		return this.shapes.get(glyph);
	}

	glyph(pen, glyph, x, y, size) {
		if (!glyph) return;
		const [own, found] = this.shapesOf(glyph);
		pen.save();
		pen.translate(x, y);
		pen.scale(size / own, size / own);
		[pen.lineJoin, pen.textAlign] = ["round", "center"];
		for (const {path, text, inks, size: font, width} of found) {
			pen.font = `${font}px sans-serif`;
			for (const [kind, ink, alpha] of inks) {
				[pen.globalAlpha, pen[`${kind}Style`], pen.lineWidth] = [alpha, ink, width];
				if (text) pen[`${kind}Text`](...text); else pen[kind](path);
			}
		}
		pen.restore();
	}
	draw(canvas, s, width, shown = {}) {
		const {picture, isGrid} = this, ratio = devicePixelRatio, tile = isGrid ? max(4, floor(width / picture.width)) : width / picture.width;
		const size = [tile * picture.width, tile * picture.height], pen = canvas.getContext("2d");
		[canvas.width, canvas.height] = size.map((pixels) => round(pixels * ratio));
		[canvas.style.width, canvas.style.height] = size.map((pixels) => `${pixels}px`);
		pen.scale(ratio, ratio);
		if (isGrid) this.grid(pen, s, tile, shown); else this.pixels(pen, s, size);
	}

	grid(pen, s, tile, {values, policies = {}, goal}) {
		const {m, cells} = this, each = (does) => {for (let cell = 0; cell < cells; cell++) does(cell, ...this.at(cell).map((n) => n * tile));};
		const has = (cell) => values && !isNaN(values[cell]);
		each((cell, x, y) => {
			this.glyph(pen, m.ground[cell], x, y, tile);
			if (has(cell)) {pen.fillStyle = css(heat(values[cell]), 0.85); pen.fillRect(x + 1, y + 1, tile - 2, tile - 2);}
		});
		[pen.strokeStyle, pen.lineWidth] = [INK, max(2, tile * 0.06)];
		each((cell, x, y) => {
			this.glyph(pen, this.thing(s, cell), x, y, tile);
			pen.setLineDash([tile * 0.16, tile * 0.1]);
			if (m.goal_cells[goal * cells + cell]) pen.strokeRect(x + tile * 0.07, y + tile * 0.07, tile * 0.86, tile * 0.86);
			pen.setLineDash([]);
		});
		m.agents.forEach((agent, i) => {
			const [x, y] = this.at(this.ofAgent("places", s, i)).map((n) => n * tile), heading = this.ofAgent("headings", s, i);
			agent.actions.forEach((name, a) => {
				const p = policies[i]?.[a] ?? 0;
				if (!(name in ARROWS) || heading < 0 || p < 0.005) return;
				pen.save();
				pen.translate(x + tile / 2, y + tile / 2);
				pen.rotate((heading + ARROWS[name]) * PI / 2);
				const half = tile * (0.08 + 0.08 * p), arrow = new Path2D();
				for (const point of [[0.46 * tile, -half], [tile * (0.56 + 0.33 * p), 0], [0.46 * tile, half]]) arrow.lineTo(...point);
				arrow.closePath();
				[pen.fillStyle, pen.lineWidth] = [`rgba(209,115,15,${0.3 + 0.7 * p})`, 1.5];
				pen.fill(arrow);
				pen.stroke(arrow);
				pen.restore();
			});
			this.glyph(pen, this.ofAgent("sprites", s, i), x, y, tile);
		});
		[pen.font, pen.textAlign, pen.lineWidth] = [`${round(tile * 0.19)}px sans-serif`, "right", 3];
		each((cell, x, y) => {
			if (!has(cell) || tile < 40) return;
			const colour = heat(values[cell]), text = values[cell].toFixed(2).replace("-", "−").replace(/^(−?)0\./, "$1.");
			[pen.strokeStyle, pen.fillStyle] = [css(colour), inkOn(colour)];
			for (const kind of ["strokeText", "fillText"]) pen[kind](text, x + tile * 0.94, y + tile * 0.92);
		});
	}

	pixels(pen, s, size) {
		const {picture: {width, height, palette}, cells, m} = this, image = new ImageData(width, height), whole = el("canvas", {width, height});
		for (let i = 0; i < cells; i++) image.data.set([...palette[m.pixels[s * cells + i]], 255], 4 * i);
		whole.getContext("2d").putImageData(image, 0, 0);
		pen.drawImage(whole, 0, 0, ...size);
	}

	drawable(s) {return this.isGrid || (s + 1) * this.cells <= (this.m.pixels?.length ?? -1);}
	text(s) {
		const {m, picture} = this, {agents} = m;
		if (!this.isGrid) return new TextDecoder().decode(m.text.subarray(m.text_offsets[s], m.text_offsets[s + 1]));
		const lines = agents.map((agent, i) => `${agent.name} at (${this.at(this.ofAgent("places", s, i))}), ${picture.glyphs[this.ofAgent("sprites", s, i)][0]}`);
		for (let cell = 0; cell < this.cells; cell++) {
			const thing = this.thing(s, cell);
			if (thing) lines.push(`${picture.glyphs[thing][0]} at (${this.at(cell)})`);
		}
		return lines.join("\n");
	}

	// The largest value of goals that contain each cell; NaN where there is none, and on walls.
	heatMap(goals, value) {
		return Float64Array.from({length: this.cells}, (_, cell) => {
			const here = goals.filter((g) => this.m.goal_cells[g * this.cells + cell]).map(value).filter((v) => !isNaN(v));
			return here.length && this.picture.glyphs[this.m.ground[cell]][0] !== "wall" ? max(...here) : NaN;
		});
	}

	// A small picture of a state, or the beginning of its text.
	thumbnail(s, width = 72) {
		if (!this.drawable(s)) return el("pre.thumb", this.text(s).slice(0, 120));
		const canvas = el("canvas.thumb", {role: "img", "aria-label": `state ${this.m.number[s]}`});
		this.draw(canvas, s, width);
		return canvas;
	}
}
export function legend(signed) {
	return (signed ? [-1, -0.5, 0, 0.5, 1] : [0, 0.2, 0.4, 0.6, 0.8, 1]).map((v) => {
		const box = el("span", v), colour = heat(v);
		[box.style.background, box.style.color] = [css(colour), inkOn(colour)];
		return box;
	});
}
