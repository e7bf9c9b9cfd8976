// The board: a state as a drawing, a picture or a text.

const ARROWS = {forward: 0, right: 1, left: 3}, INK = "#262a33";

function heat(value) {
	const scale = value < 0 ? T.loss : T.scale, at = min(1, abs(value)) * 5, low = min(floor(at), 4);
	return scale[low].map((c, i) => round(c + (scale[low + 1][i] - c) * (at - low)));
}

const css = (rgb, alpha = 1) => `rgba(${rgb},${alpha})`;
const inkOn = ([r, g, b]) => 0.299 * r + 0.587 * g + 0.114 * b > 120 ? INK : "#fff";

class Board {
	constructor() {
		const {picture} = m.header;
		Object.assign(this, {picture, drawn: new Map(), isGrid: picture.kind === "grid", cells: picture.width * picture.height});
		this.columns = new Map([...m.changes ?? []].map((cell, i) => [cell, i]));
	}
	thing(s, cell) {
		const {fixed, things} = m, column = this.columns.get(cell);
		return column === undefined ? fixed[cell] : things[s * this.columns.size + column];
	}

	ofAgent(name, s, i) {return m[name][s * m.agents.length + i];}

	at(cell) {return [cell % this.picture.width, floor(cell / this.picture.width)];}

	// Pictures of glyphs are kept, since drawing their shapes takes long.
	glyph(pen, glyph, x, y, size) {
		const {side, shapes} = this.picture.glyphs[glyph], key = `${glyph} ${size} ${devicePixelRatio}`;
		if (!this.drawn.has(key)) {
			const width = ceil(size * devicePixelRatio), made = el("canvas", {width, height: width});
			this.shapes(made.getContext("2d"), shapes, width / side);
			this.drawn.set(key, made);
		}
		pen.drawImage(this.drawn.get(key), x, y, size, size);
	}

	shapes(pen, shapes, scale) {
		pen.scale(scale, scale);
		[pen.lineJoin, pen.textAlign] = ["round", "center"];
		for (const shape of shapes) {
			const path = new Path2D(shape.path);
			[pen.font, pen.lineWidth, pen.globalAlpha] = [`${shape.size}px sans-serif`, shape.width, shape.opacity];
			for (const kind of ["stroke", "fill"]) {
				if (!shape[kind]) continue;
				pen[`${kind}Style`] = shape[kind];
				if (shape.text) pen[`${kind}Text`](shape.text, shape.x, shape.y); else pen[kind](path);
			}
		}
	}

	draw(canvas, s, width, shown = {}) {
		const {picture, isGrid} = this, ratio = devicePixelRatio, tile = isGrid ? max(4, floor(width / picture.width)) : width / picture.width;
		const size = [tile * picture.width, tile * picture.height], pen = canvas.getContext("2d");
		[canvas.width, canvas.height] = size.map((pixels) => round(pixels * ratio));
		[canvas.style.width, canvas.style.height] = size.map((pixels) => `${pixels}px`);
		pen.scale(ratio, ratio);
		if (isGrid) this.grid(pen, s, tile, shown); else this.pixels(pen, s, size);
	}

	grid(pen, s, tile, {values, scale, policies = {}, goal}) {
		const {cells} = this, each = (does) => {for (let cell = 0; cell < cells; cell++) does(cell, ...this.at(cell).map((n) => n * tile));};
		const has = (cell) => values && !isNaN(values[cell]);
		each((cell, x, y) => {
			this.glyph(pen, m.ground[cell], x, y, tile);
			if (has(cell)) {pen.fillStyle = css(heat(values[cell] / scale), 0.85); pen.fillRect(x + 1, y + 1, tile - 2, tile - 2);}
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
				pen.scale(tile, tile);
				const half = 0.08 + 0.08 * p, arrow = new Path2D(`M.46,${-half}L${0.56 + 0.33 * p},0 .46,${half}Z`);
				[pen.fillStyle, pen.lineWidth] = [`rgba(209,115,15,${0.3 + 0.7 * p})`, 1.5 / tile];
				pen.fill(arrow);
				pen.stroke(arrow);
				pen.restore();
			});
			this.glyph(pen, this.ofAgent("sprites", s, i), x, y, tile);
		});
		[pen.font, pen.textAlign, pen.lineWidth] = [`${round(tile * 0.19)}px sans-serif`, "right", 3];
		each((cell, x, y) => {
			if (!has(cell) || tile < 40) return;
			const value = values[cell], colour = heat(value / scale), digits = scale < 0.1 && abs(value) > 1e-12 ? value.toExponential(0) : value.toFixed(2);
			const text = digits.replaceAll("-", "−").replace(/^(−?)0\./, "$1.");
			[pen.strokeStyle, pen.fillStyle] = [css(colour), inkOn(colour)];
			for (const kind of ["strokeText", "fillText"]) pen[kind](text, x + tile * 0.9, y + tile * 0.88);
		});
	}

	pixels(pen, s, size) {
		const {picture: {width, height, palette}, cells} = this, image = new ImageData(width, height), whole = el("canvas", {width, height});
		for (let i = 0; i < cells; i++) image.data.set([...palette[m.pixels[s * cells + i]], 255], 4 * i);
		whole.getContext("2d").putImageData(image, 0, 0);
		pen.drawImage(whole, 0, 0, ...size);
	}

	drawable(s) {return this.isGrid || (s + 1) * this.cells <= (m.pixels?.length ?? -1);}
	text(s) {
		const {picture} = this, {agents} = m;
		if (!this.isGrid) return new TextDecoder().decode(m.text.subarray(m.text_offsets[s], m.text_offsets[s + 1]));
		const lines = agents.map((agent, i) => `${agent.name} at (${this.at(this.ofAgent("places", s, i))}), ${picture.glyphs[this.ofAgent("sprites", s, i)].name}`);
		for (let cell = 0; cell < this.cells; cell++) {
			const thing = this.thing(s, cell);
			if (thing) lines.push(`${picture.glyphs[thing].name} at (${this.at(cell)})`);
		}
		return lines.join("\n");
	}

	// The largest value of the goals of each cell; NaN where there is none.
	heatMap(goals, value) {
		return Float64Array.from({length: this.cells}, (_, cell) => {
			const here = goals.filter((g) => m.goal_cells[g * this.cells + cell]).map(value).filter((v) => !isNaN(v));
			return here.length && this.picture.glyphs[m.ground[cell]].name !== "wall" ? max(...here) : NaN;
		});
	}

	thumbnail(s, width = 72) {
		if (!this.drawable(s)) return el("pre.thumb", this.text(s).slice(0, 120));
		const canvas = el("canvas.thumb", {role: "img", "aria-label": `state ${m.number[s]}`});
		this.draw(canvas, s, width);
		return canvas;
	}
}
function legend(signed, scale) {
	return (signed ? [-1, -0.5, 0, 0.5, 1] : [0, 0.2, 0.4, 0.6, 0.8, 1]).map((v) => {
		const box = el("span", v && scale < 0.1 ? (v * scale).toExponential(1) : +(v * scale).toPrecision(2)), colour = heat(v);
		[box.style.background, box.style.color] = [css(colour), inkOn(colour)];
		return box;
	});
}
