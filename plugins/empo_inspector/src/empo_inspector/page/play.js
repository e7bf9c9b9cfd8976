// Episodes by the same random numbers as in Python: PCG32, and the inverse of cumulative sums.

const MASK = (1n << 64n) - 1n, STRIDE = 6364136223846793005n, SEQUENCE = 54n << 1n | 1n;

export class Pcg32 {
  constructor(seed) {
    this.state = 0n;
    this.next();
    this.state = this.state + BigInt(seed) & MASK;
    this.next();
  }

  next() {
    const old = this.state;
    this.state = old * STRIDE + SEQUENCE & MASK;
    const shifted = Number((old >> 18n ^ old) >> 27n & 0xffffffffn), turn = Number(old >> 59n);
    return (shifted >>> turn | shifted << (-turn & 31)) >>> 0;
  }

  uniform() { return (this.next() + 0.5) / 2 ** 32; }

  draw(weights) {
    const u = this.uniform();
    let total = 0, last = 0;
    for (let i = 0; i < weights.length; i++) {
      if (!(weights[i] > 0)) continue;
      total += weights[i];
      last = i;
      if (u < total) return i;
    }
    return last;
  }
}

// An episode in which some agents act as told and the others draw their actions.
export class Episode {
  constructor(model, seed, goals = {}) {
    this.model = model;
    this.random = new Pcg32(seed);
    this.goals = model.goalsOf.map((own, h) => {
      const weight = own.map((g) => model.goals[g].weight), total = weight.reduce((a, b) => a + b, 0);
      const drawn = own[this.random.draw(weight.map((w) => w / total))];
      return goals[h] ?? drawn;
    });
  }

  // The joint action and the state that follow; `told` has actions by agent index, null where it cannot be.
  step(s, t, told) {
    const { model } = this, { world } = model, policies = model.policies(s, t), before = this.random.state;
    let j = 0;
    world.humans.forEach((agent, h) => {
      const own = policies.pi_h.subarray(this.goals[h] * model.A, (this.goals[h] + 1) * model.A);
      j += world.strides[agent] * (told[agent] ?? this.random.draw(own));
    });
    const robots = policies.pi_r.map((p, r) => world.robots.every(
      (agent, i) => told[agent] === undefined || told[agent] === model.robotDigits[r][i]) ? p : 0);
    const total = robots.reduce((a, b) => a + b, 0), all = world.robots.every((agent) => told[agent] !== undefined);
    let r = model.robotDigits.findIndex((digits) => world.robots.every((agent, i) => told[agent] === digits[i]));
    if (!all) r = this.random.draw(robots.map((p) => p / total));
    world.robots.forEach((agent, i) => { j += world.strides[agent] * model.robotDigits[r][i]; });
    const begin = model.offsets[s * model.J + j], end = model.offsets[s * model.J + j + 1];
    if (begin === end) {
      this.random.state = before;
      return null;
    }
    const items = Array.from({ length: end - begin }, (_, i) => begin + i);
    const item = items[this.random.draw(items.map((k) => model.prob[model.code[k]]))];
    return { joint: j, successor: model.successor[item] };
  }
}
