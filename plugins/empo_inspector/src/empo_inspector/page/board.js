// The board: a state as a drawing, a picture or a text.

const ARROWS = {forward: 0, right: 1, left: 3}, INK = "#262a33";

// A colour, and that of words on it.
const heat = (value) => (value < 0 ? T.losses : T.gains)[round(min(1, abs(value)) * (T.losses.length - 1))];

class Board {
	constructor() {
		const {picture} = m.header;
		Object.assign(this, {picture, drawn: new Map(), isGrid: picture.kind === "grid", cells: range(picture.width * picture.height)});
		this.columns = new Map([...m.changes ?? []].map((cell, i) => [cell, i]));
		this.sight = new IntersectionObserver((all) => all.forEach(({isIntersecting, target}) => isIntersecting && target.reveal()));
		addEventListener("beforeprint", () => document.querySelectorAll("canvas.thumb").forEach((each) => each.reveal()));
	}

	// Pairs of a cell and the glyph of what is in it.
	things(s) {
		const {columns} = this, glyph = (cell) => columns.has(cell) ? m.things[s * columns.size + columns.get(cell)] : m.fixed[cell];
		return this.cells.map((cell) => [cell, glyph(cell)]).filter(([, found]) => found);
	}

	ofAgent(name, s, i) {return m[name][s * m.agents.length + i];}

	at(cell) {return [cell % this.picture.width, floor(cell / this.picture.width)];}

	// Pictures of glyphs and of the ground are kept, since drawing their shapes takes long.
	paste(pen, name, x, y, size, paint) {
		const key = `${name} ${size} ${devicePixelRatio}`;
		if (!this.drawn.has(key)) {
			const [width, height] = size.map((pixels) => ceil(pixels * devicePixelRatio)), made = el("canvas", {width, height}), inner = made.getContext("2d");
			inner.scale(width / size[0], height / size[1]);
			paint(inner);
			this.drawn.set(key, made);
		}
		pen.drawImage(this.drawn.get(key), x, y, ...size);
	}

	glyph(pen, glyph, [x, y], tile) {
		const {side, shapes} = this.picture.glyphs[glyph];
		this.paste(pen, glyph, x, y, [tile, tile], (inner) => this.shapes(inner, shapes, tile / side));
	}

	shapes(pen, shapes, scale) {
		pen.scale(scale, scale);
		[pen.lineJoin, pen.textAlign] = ["round", "center"];
		for (const {path, text, x, y, size, width, opacity, ...colours} of shapes) {
			[pen.font, pen.lineWidth, pen.globalAlpha] = [`${size}px sans-serif`, width, opacity];
			for (const kind of ["stroke", "fill"].filter((each) => colours[each])) {
				pen[`${kind}Style`] = colours[kind];
				if (text) pen[`${kind}Text`](text, x, y); else pen[kind](new Path2D(path));
			}
		}
	}

	// Takes its room on the page.
	place(canvas, width) {
		const {picture, isGrid} = this, tile = isGrid ? max(4, floor(width / picture.width)) : width / picture.width, size = [tile * picture.width, tile * picture.height];
		[canvas.style.width, canvas.style.height] = size.map((pixels) => `${pixels}px`);
		return [tile, size];
	}

	draw(canvas, s, width, shown = {}) {
		const [tile, size] = this.place(canvas, width), ratio = devicePixelRatio, pen = canvas.getContext("2d");
		[canvas.width, canvas.height] = size.map((pixels) => round(pixels * ratio));
		pen.scale(ratio, ratio);
		if (this.isGrid) this.grid(pen, s, tile, size, shown); else this.pixels(pen, s, size);
	}

	grid(pen, s, tile, size, {values, scale, policies = {}, goal}) {
		const {cells} = this, spot = (cell) => this.at(cell).map((n) => n * tile), valued = cells.filter((cell) => values && !isNaN(values[cell]));
		this.paste(pen, "ground", 0, 0, size, (inner) => cells.forEach((cell) => this.glyph(inner, m.ground[cell], spot(cell), tile)));
		pen.globalAlpha = 0.85;
		for (const cell of valued) {
			[pen.fillStyle] = heat(values[cell] / scale);
			pen.fillRect(...spot(cell).map((n) => n + 1), tile - 2, tile - 2);
		}
		pen.globalAlpha = 1;
		for (const [cell, glyph] of this.things(s)) this.glyph(pen, glyph, spot(cell), tile);
		[pen.strokeStyle, pen.lineWidth] = [INK, max(2, tile * 0.06)];
		pen.setLineDash([tile * 0.16, tile * 0.1]);
		for (const cell of cells) if (m.goal_cells[goal * cells.length + cell]) pen.strokeRect(...spot(cell).map((n) => n + tile * 0.07), tile * 0.86, tile * 0.86);
		pen.setLineDash([]);
		m.agents.forEach((agent, i) => {
			const [x, y] = spot(this.ofAgent("places", s, i)), heading = this.ofAgent("headings", s, i);
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
			this.glyph(pen, this.ofAgent("sprites", s, i), [x, y], tile);
		});
		[pen.font, pen.textAlign, pen.lineWidth] = [`${round(tile * 0.19)}px sans-serif`, "right", 3];
		for (const cell of tile < 40 ? [] : valued) {
			const value = values[cell], [x, y] = spot(cell), digits = scale < 0.1 && abs(value) > 1e-12 ? value.toExponential(0) : value.toFixed(2);
			const text = digits.replaceAll("-", "−").replace(/^(−?)0\./, "$1.");
			[pen.strokeStyle, pen.fillStyle] = heat(value / scale);
			for (const kind of ["strokeText", "fillText"]) pen[kind](text, x + tile * 0.9, y + tile * 0.88);
		}
	}

	pixels(pen, s, size) {
		const {picture: {width, height, palette}, cells} = this, image = new ImageData(width, height), whole = el("canvas", {width, height});
		for (const cell of cells) image.data.set([...palette[m.pixels[s * cells.length + cell]], 255], 4 * cell);
		whole.getContext("2d").putImageData(image, 0, 0);
		pen.drawImage(whole, 0, 0, ...size);
	}

	drawable(s) {return this.isGrid || (s + 1) * this.cells.length <= (m.pixels?.length ?? -1);}

	text(s) {
		if (!this.isGrid) return new TextDecoder().decode(m.text.subarray(m.text_offsets[s], m.text_offsets[s + 1]));
		const name = (glyph) => this.picture.glyphs[glyph].name, place = (cell) => ` at (${this.at(cell)})`;
		const agents = m.agents.map((agent, i) => `${agent.name}${place(this.ofAgent("places", s, i))}, ${name(this.ofAgent("sprites", s, i))}`);
		return [...agents, ...this.things(s).map(([cell, glyph]) => name(glyph) + place(cell))].join("\n");
	}

	// The largest value of the goals of each cell; NaN where there is none.
	heatMap(goals, value) {
		return this.cells.map((cell) => {
			const here = goals.filter((g) => m.goal_cells[g * this.cells.length + cell]).map(value).filter((v) => !isNaN(v));
			return here.length && this.picture.glyphs[m.ground[cell]].name !== "wall" ? max(...here) : NaN;
		});
	}

	// Drawn when it comes into sight, since there may be many.
	thumbnail(s, width = 72) {
		if (!this.drawable(s)) return el("pre.thumb", this.text(s).slice(0, 120));
		const canvas = el("canvas.thumb", {role: "img", "aria-label": `state ${m.number[s]}`});
		canvas.reveal = () => this.draw(canvas, s, width);
		this.place(canvas, width);
		this.sight.observe(canvas);
		return canvas;
	}
}

function legend(signed, scale) {
	return (signed ? [-1, -0.5, 0, 0.5, 1] : [0, 0.2, 0.4, 0.6, 0.8, 1]).map((v) => {
		const box = el("span", v && scale < 0.1 ? (v * scale).toExponential(1) : +(v * scale).toPrecision(2));
		[box.style.background, box.style.color] = heat(v);
		return box;
	});
}
