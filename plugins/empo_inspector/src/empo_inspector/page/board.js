// The board: a state on a canvas, with a heat map, or its picture, or its text.

import { el, short } from "./parts.js";

const SCALE = [[244, 249, 243], [206, 236, 208], [138, 211, 192], [67, 162, 202], [12, 92, 158], [8, 48, 107]];
const LOSS = [[253, 244, 233], [250, 215, 170], [240, 160, 85], [205, 100, 20], [140, 50, 0], [85, 25, 0]];
const ARROWS = { left: 3, right: 1, forward: 0 };
const DX = [1, 0, -1, 0], DY = [0, 1, 0, -1];
export const DIRECTIONS = ["east", "south", "west", "north"];

export function heat(value) {
  const scale = value < 0 ? LOSS : SCALE, at = Math.min(1, Math.abs(value)) * (scale.length - 1);
  const low = Math.min(Math.floor(at), scale.length - 2), share = at - low;
  return scale[low].map((c, i) => Math.round(c + (scale[low + 1][i] - c) * share));
}

const css = ([r, g, b], alpha = 1) => `rgba(${r},${g},${b},${alpha})`;
export const inkOn = ([r, g, b]) => 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#262a33" : "#fff";

export class Board {
  constructor(model) {
    this.model = model;
    this.picture = model.header.picture;
    this.glyphs = new Map();
    this.images = new Map();
  }

  get isGrid() { return this.picture.kind === "grid"; }

  // What lies in a cell, as a glyph.
  thing(s, cell) {
    const { changes, things, fixed } = this.model, at = this.place(changes, cell);
    return at < 0 ? fixed[cell] : things[s * changes.length + at];
  }

  place(changes, cell) {
    this.columns ??= new Map([...changes].map((each, i) => [each, i]));
    return this.columns.get(cell) ?? -1;
  }

  where(s, agent) {
    const cell = this.model.places[s * this.model.world.agents.length + agent];
    return [cell % this.picture.width, Math.floor(cell / this.picture.width)];
  }

  // Glyphs are SVG documents of few kinds of shapes; they are read as data and never shown as documents.
  shapes(glyph) {
    if (!this.glyphs.has(glyph)) {
      const root = new DOMParser().parseFromString(this.picture.glyphs[glyph]?.[1] ?? "", "image/svg+xml").documentElement;
      const get = (node, name) => Number(node.getAttribute(name));
      const points = (node) => (node.getAttribute("points") ?? "").split(" ").map((pair) => pair.split(",").map(Number));
      const found = [...root.children].map((node) => {
        const path = new Path2D();
        if (node.tagName === "circle") path.arc(get(node, "cx"), get(node, "cy"), Math.max(0, get(node, "r")), 0, 7);
        else if (node.tagName === "rect") path.roundRect(get(node, "x"), get(node, "y"), get(node, "width"), get(node, "height"), get(node, "rx") || 0);
        else if (node.tagName !== "text") points(node).forEach(([x, y], i) => i ? path.lineTo(x, y) : path.moveTo(x, y));
        if (node.tagName === "polygon") path.closePath();
        const text = node.tagName === "text" && { at: [get(node, "x"), get(node, "y")], size: get(node, "font-size"), says: node.textContent, anchor: node.getAttribute("text-anchor") };
        const style = (name) => [node.getAttribute(name), Number(node.getAttribute(`${name}-opacity`) ?? 1)];
        return { path, text, fill: style("fill"), stroke: style("stroke"), width: get(node, "stroke-width") };
      });
      this.glyphs.set(glyph, { size: get(root, "width") || 96, found });
    }
    return this.glyphs.get(glyph);
  }

  glyph(pen, glyph, x, y, size) {
    if (!glyph) return;
    const { size: own, found } = this.shapes(glyph);
    pen.save();
    pen.translate(x, y);
    pen.scale(size / own, size / own);
    pen.lineJoin = "round";
    for (const { path, text, fill, stroke, width } of found) {
      if (text) {
        pen.font = `${text.size}px sans-serif`;
        pen.textAlign = { middle: "center", end: "right" }[text.anchor] ?? "left";
      }
      for (const [kind, [colour, alpha]] of [["stroke", stroke], ["fill", fill]]) {
        if (!colour || colour === "none") continue;
        pen.globalAlpha = alpha;
        pen[`${kind}Style`] = colour;
        pen.lineWidth = width;
        if (text) pen[`${kind}Text`](text.says, ...text.at); else pen[kind](path);
      }
    }
    pen.restore();
  }

  // Draws a state; `shown` may have heat by cell, policies of agents, and a goal.
  draw(canvas, s, width, shown = {}) {
    const { picture } = this, ratio = globalThis.devicePixelRatio || 1;
    const tile = Math.max(4, Math.floor(width / picture.width));
    const size = this.isGrid ? [tile * picture.width, tile * picture.height]
      : [width, width * picture.height / picture.width];
    [canvas.width, canvas.height] = size.map((pixels) => Math.round(pixels * ratio));
    [canvas.style.width, canvas.style.height] = size.map((pixels) => `${pixels}px`);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    if (this.isGrid) this.grid(pen, s, tile, shown);
    else this.pixels(pen, s, size);
  }

  grid(pen, s, tile, { values, policies, goal }) {
    const { model, picture } = this, { width, height } = picture, agents = model.world.agents.length;
    const at = (cell) => [cell % width * tile, Math.floor(cell / width) * tile];
    for (let cell = 0; cell < width * height; cell++) {
      this.glyph(pen, model.ground[cell], ...at(cell), tile);
      if (values && !Number.isNaN(values[cell])) {
        pen.fillStyle = css(heat(values[cell]), 0.85);
        pen.fillRect(at(cell)[0] + 1, at(cell)[1] + 1, tile - 2, tile - 2);
      }
    }
    for (let cell = 0; cell < width * height; cell++) this.glyph(pen, this.thing(s, cell), ...at(cell), tile);
    if (goal !== undefined && goal !== null) this.frame(pen, goal, tile, at);
    for (let i = 0; i < agents; i++) {
      const cell = model.places[s * agents + i], policy = policies?.[i];
      if (policy) this.arrows(pen, s, i, policy, at(cell), tile);
      this.glyph(pen, model.agents[s * agents + i], ...at(cell), tile);
    }
    if (!values || tile < 40) return;
    pen.font = `${Math.round(tile * 0.19)}px sans-serif`;
    [pen.textAlign, pen.textBaseline] = ["right", "alphabetic"];
    values.forEach((value, cell) => {
      if (Number.isNaN(value)) return;
      const colour = heat(value), [x, y] = at(cell);
      [pen.strokeStyle, pen.lineWidth, pen.fillStyle] = [css(colour), 3, inkOn(colour)];
      const text = value.toFixed(2).replace("-", "−").replace(/^(−?)0\./, "$1.");
      pen.strokeText(text, x + tile * 0.94, y + tile * 0.92);
      pen.fillText(text, x + tile * 0.94, y + tile * 0.92);
    });
  }

  frame(pen, goal, tile, at) {
    const cells = this.picture.width * this.picture.height;
    [pen.strokeStyle, pen.lineWidth] = ["#262a33", Math.max(2, tile * 0.06)];
    pen.setLineDash([tile * 0.16, tile * 0.1]);
    for (let cell = 0; cell < cells; cell++) {
      if (!this.model.goal_cells[goal * cells + cell]) continue;
      const [x, y] = at(cell), gap = tile * 0.07;
      pen.strokeRect(x + gap, y + gap, tile - 2 * gap, tile - 2 * gap);
    }
    pen.setLineDash([]);
  }

  arrows(pen, s, agent, policy, [x, y], tile) {
    const heading = this.model.headings[s * this.model.world.agents.length + agent];
    this.model.world.agents[agent].actions.forEach((name, a) => {
      if (!(name in ARROWS) || heading < 0 || policy[a] < 0.005) return;
      pen.save();
      pen.translate(x + tile / 2, y + tile / 2);
      pen.rotate((heading + ARROWS[name]) * Math.PI / 2);
      const p = policy[a], length = tile * (0.1 + 0.33 * p), half = tile * (0.08 + 0.08 * p), base = tile * 0.46;
      pen.beginPath();
      pen.moveTo(base, -half);
      pen.lineTo(base + length, 0);
      pen.lineTo(base, half);
      pen.closePath();
      [pen.fillStyle, pen.strokeStyle, pen.lineWidth] = [`rgba(209,115,15,${0.3 + 0.7 * p})`, "#262a33", 1.5];
      pen.fill();
      pen.stroke();
      pen.restore();
    });
  }

  pixels(pen, s, size) {
    const { width, height, palette } = this.picture, area = width * height, { pixels } = this.model;
    if (!this.hasPixels(s)) return;
    const image = new ImageData(width, height);
    for (let i = 0; i < area; i++) {
      const colour = palette[pixels[s * area + i]] ?? [0, 0, 0];
      image.data.set(colour, 4 * i);
      image.data[4 * i + 3] = 255;
    }
    const whole = document.createElement("canvas");
    [whole.width, whole.height] = [width, height];
    whole.getContext("2d").putImageData(image, 0, 0);
    pen.drawImage(whole, 0, 0, ...size);
  }

  hasPixels(s) {
    const area = this.picture.width * this.picture.height;
    return this.picture.kind === "pixels" && (s + 1) * area <= this.model.pixels.length;
  }

  drawable(s) { return this.isGrid || this.hasPixels(s); }

  // The state in words, for those who do not see it.
  text(s) {
    const { model } = this;
    if (!this.isGrid) {
      const [from, to] = [model.text_offsets[s], model.text_offsets[s + 1]];
      return new TextDecoder().decode(model.text.subarray(from, to));
    }
    const n = model.world.agents.length, name = (glyph) => this.picture.glyphs[glyph]?.[0] ?? "";
    const lines = model.world.agents.map((agent, i) => `${agent.name} at (${this.where(s, i)}), ${name(model.agents[s * n + i])}`);
    for (let cell = 0; cell < this.picture.width * this.picture.height; cell++) {
      const thing = this.thing(s, cell);
      if (thing) lines.push(`${name(thing)} at (${cell % this.picture.width},${Math.floor(cell / this.picture.width)})`);
    }
    return lines.join("\n");
  }

  // The largest value of goals that contain each cell; NaN where there is none.
  heatMap(goals, value) {
    const cells = this.picture.width * this.picture.height, found = new Float64Array(cells).fill(NaN);
    for (const g of goals) {
      const v = value(g);
      for (let cell = 0; cell < cells; cell++) {
        const name = this.picture.glyphs[this.model.ground[cell]]?.[0];
        if (!this.model.goal_cells[g * cells + cell] || Number.isNaN(v) || name === "wall") continue;
        if (Number.isNaN(found[cell]) || v > found[cell]) found[cell] = v;
      }
    }
    return found;
  }

  // A small picture of a state, or the beginning of its text.
  thumbnail(s, width = 72) {
    if (!this.drawable(s)) return el("pre", { class: "thumb" }, this.text(s).slice(0, 120));
    const canvas = el("canvas", { class: "thumb", role: "img", "aria-label": `state ${this.model.number[s]}` });
    this.draw(canvas, s, width);
    return canvas;
  }
}

// The colour scale of heat maps, with its ends.
export function legend(signed) {
  const cells = (signed ? [-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1] : [0, 0.2, 0.4, 0.6, 0.8, 1]).map((v) => {
    const box = el("span", { class: "swatch" }, short(v));
    const colour = heat(v);
    [box.style.background, box.style.color] = [css(colour), inkOn(colour)];
    return box;
  });
  return el("div", { class: "legend", "aria-label": "colour scale" }, cells);
}
