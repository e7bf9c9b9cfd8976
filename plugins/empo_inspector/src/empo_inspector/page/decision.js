// Decisions worked out from the values one step later: equations (1)-(9), as empo_inspector.decision.

export const NOT_KEPT = 0xffffffff;
const TIE = 1e-12;

export class LeftOut extends Error {}

export class Model {
  constructor(header, arrays) {
    const world = header.world, count = (agents) => agents.map((i) => world.agents[i].actions.length);
    const product = (numbers) => numbers.reduce((a, b) => a * b, 1);
    Object.assign(this, arrays, { header, world, theory: header.theory, horizon: world.horizon });
    this.goals = world.goals;
    [this.S, this.G, this.H] = [header.kept.states, this.goals.length, world.humans.length];
    [this.first, this.T] = [header.kept.first_time, header.kept.times];
    this.J = product(world.agents.map((agent) => agent.actions.length));
    this.R = product(count(world.robots));
    this.P = product(count(world.humans));
    this.A = Math.max(...count(world.humans));
    this.whose = this.goals.map((goal) => world.humans.indexOf(goal.human));
    this.goalsOf = world.humans.map((_, h) => [...this.goals.keys()].filter((g) => this.whose[g] === h));
    this.robotDigits = this.digits(world.robots, this.R);
    this.humanDigits = this.digits(world.humans, this.P);
    this.robotNames = this.robotDigits.map(
      (own) => own.map((a, i) => world.agents[world.robots[i]].actions[a]).join(" + ") || "(no robot)");
    this.slot = new Int32Array(this.J);
    this.joint = new Int32Array(this.J);
    for (let p = 0; p < this.P; p++) {
      for (let r = 0; r < this.R; r++) {
        let j = 0;
        world.robots.forEach((agent, i) => { j += world.strides[agent] * this.robotDigits[r][i]; });
        world.humans.forEach((agent, i) => { j += world.strides[agent] * this.humanDigits[p][i]; });
        this.slot[j] = p * this.R + r;
        this.joint[p * this.R + r] = j;
      }
    }
    this.bytes = Math.ceil(this.G / 8);
    this.index = new Map([...this.number].map((number, s) => [number, s]));
    this.cache = new Map();
  }

  // The actions of some agents in each of their joint actions, the first agent fastest.
  digits(agents, total) {
    return Array.from({ length: total }, (_, joint) => agents.map((i) => {
      const n = this.world.agents[i].actions.length, digit = joint % n;
      joint = Math.floor(joint / n);
      return digit;
    }));
  }

  has(s, g) { return (this.achieved[s * this.bytes + (g >> 3)] >> (g & 7) & 1) === 1; }

  goesOn(s) { return this.offsets[(s + 1) * this.J] > this.offsets[s * this.J]; }

  alive(s, t) { return (this.horizon === null || t < this.horizon) && this.goesOn(s); }

  // Position of a time on the time axis of values.
  at(t) { return this.horizon === null ? 0 : t - this.first; }

  stored(name, s, t, g) {
    const row = this.at(t) * this.S + s;
    return g === undefined ? this[name][row] : this[name][row * this.G + g];
  }

  // True if the state can be reached by then, and its values are kept.
  known(s, t) {
    return !this.alive(s, t) || (this.at(t) >= 0 && this.at(t) < this.T && !Number.isNaN(this.stored("v_r", s, t)));
  }

  followsParameters() { return this.v_m !== undefined; }

  *transitions(s) {
    for (let j = 0; j < this.J; j++) {
      for (let k = this.offsets[s * this.J + j]; k < this.offsets[s * this.J + j + 1]; k++) {
        yield [this.slot[j], this.successor[k], this.code[k]];
      }
    }
  }

  tables(theory) {
    const rho = -Math.log(theory.gamma_r);
    const weight = (d) => theory.accrual === "discrete" ? 1 : rho === 0 ? d : -Math.expm1(-rho * d) / rho;
    return {
      human: this.duration.map((d) => theory.gamma_h ** d),
      robot: this.duration.map((d) => theory.gamma_r ** d),
      accrued: this.duration.map(weight),
    };
  }

  // Policies in a state from which an episode goes on; solved ones are kept for the next question.
  policies(s, t, theory = this.theory) {
    if (theory !== this.theory) return this.workedOut(s, t, theory);
    const key = this.at(t) * this.S + s;
    if (this.cache.size > 20000) this.cache.clear();
    if (!this.cache.has(key)) this.cache.set(key, this.workedOut(s, t, theory));
    return this.cache.get(key);
  }

  workedOut(s, t, theory) {
    const { G, R, P } = this, size = P * R, expected = this.expected(s, t, theory, "v_m");
    const { q_m, pi_h, reply } = this.humans(s, t, theory, expected);
    const marginal = this.marginals(pi_h, theory), chance = this.product(marginal);
    const q_r = new Float64Array(R).fill(NaN), accrued = new Float64Array(R);
    for (let slot = 0; slot < size; slot++) {
      const r = slot % R, p = (slot - r) / R;
      if (!expected.possible[slot]) continue;
      q_r[r] = (Number.isNaN(q_r[r]) ? 0 : q_r[r]) + chance[p] * expected.next[slot];
      accrued[r] += chance[p] * expected.weight[slot];
    }
    return { q_m, pi_h, reply, marginal, chance, q_r, accrued, pi_r: robotPolicy(q_r, theory.beta_r) };
  }

  // Expected payoffs of every slot: a joint action of the humans, times R, plus one of the robots.
  expected(s, t, theory, name) {
    const { G, S } = this, size = this.P * this.R, table = this.tables(theory), values = this[name];
    const after = this.horizon === null ? 0 : this.at(t) + 1, over = after >= this.T;
    const possible = new Uint8Array(size), next = new Float64Array(size), weight = new Float64Array(size);
    const worth = new Float64Array(values ? size * G : 0);
    for (const [slot, successor, code] of this.transitions(s)) {
      if (successor === NOT_KEPT) throw new LeftOut("States that follow this one are not kept in this file.");
      const p = this.prob[code], alive = !over && this.goesOn(successor), row = after * S + successor;
      const v = alive ? this.v_r[row] : theory.terminal_value;
      if (Number.isNaN(v)) throw new LeftOut("This state cannot be reached by that time.");
      possible[slot] = 1;
      next[slot] += p * (table.robot[code] * v);
      weight[slot] += p * table.accrued[code];
      if (!values) continue;
      for (let g = 0; g < G; g++) {
        worth[slot * G + g] += p * (this.has(successor, g) ? 1 : alive ? table.human[code] * values[row * G + g] : 0);
      }
    }
    return { possible, next, weight, worth };
  }

  // Equations (1) and (2) for each goal's human, and the robots' replies that they expect.
  humans(s, t, theory, { possible, worth }) {
    const { G, A, P, R } = this, q_m = new Float64Array(G * A), pi_h = new Float64Array(G * A);
    const reply = new Int32Array(P * G).fill(-1);
    if (!this.followsParameters()) {
      const start = (this.at(t) * this.S + s) * G * A;
      return { q_m, pi_h: this.pi_h.slice(start, start + G * A), reply };
    }
    const better = theory.robot_model === "optimistic" ? (x, y) => x > y : (x, y) => x < y;
    for (let g = 0; g < G; g++) {
      const h = this.whose[g], q = new Float64Array(A), ways = new Float64Array(A);
      for (let p = 0; p < P; p++) {
        let best = -1;
        for (let r = 0; r < R; r++) {
          const slot = p * R + r;
          if (possible[slot] && (best < 0 || better(worth[slot * G + g], worth[(p * R + best) * G + g]))) best = r;
        }
        if (best < 0) continue;
        reply[p * G + g] = best;
        q[this.humanDigits[p][h]] += worth[(p * R + best) * G + g];
        ways[this.humanDigits[p][h]] += 1;
      }
      for (let a = 0; a < A; a++) q[a] /= Math.max(1, ways[a]);
      q_m.set(q, g * A);
      pi_h.set(this.has(s, g) ? oneHot(ways) : humanPolicy(q, ways, theory), g * A);
    }
    return { q_m, pi_h, reply };
  }

  weights(theory) { return theory.weights ?? this.goals.map((goal) => goal.weight); }

  marginals(pi_h, theory) {
    const weight = this.weights(theory);
    return this.goalsOf.map((goals) => {
      const mixed = new Float64Array(this.A), total = goals.reduce((sum, g) => sum + weight[g], 0);
      for (const g of goals) for (let a = 0; a < this.A; a++) mixed[a] += weight[g] / total * pi_h[g * this.A + a];
      return mixed;
    });
  }

  // Probability of each joint action of the humans, one human's part perhaps left out.
  product(marginal, without = -1) {
    return Float64Array.from({ length: this.P }, (_, p) => marginal.reduce(
      (chance, own, h) => h === without ? chance : chance * own[this.humanDigits[p][h]], 1));
  }

  // Equations (6)-(9) by the values one step later.
  outcomes(s, t, policies, theory = this.theory) {
    const { G, A, R, P } = this, { possible, worth } = this.expected(s, t, theory, "v_e");
    const q_e = new Float64Array(R * G), v_e = new Float64Array(G);
    const others = this.goalsOf.map((_, h) => this.product(policies.marginal, h));
    for (let g = 0; g < G; g++) {
      const h = this.whose[g];
      for (let p = 0; p < P; p++) {
        const chance = policies.pi_h[g * A + this.humanDigits[p][h]] * others[h][p];
        for (let r = 0; r < R; r++) q_e[r * G + g] += chance * worth[(p * R + r) * G + g];
      }
      for (let r = 0; r < R; r++) v_e[g] += policies.pi_r[r] * q_e[r * G + g];
    }
    const { x_h, u_r } = this.reward(v_e, theory);
    let v_r = 0;
    for (let r = 0; r < R; r++) {
      const q = policies.q_r[r];
      if (Number.isNaN(q)) q_e.fill(NaN, r * G, (r + 1) * G);
      else v_r += policies.pi_r[r] * (u_r * policies.accrued[r] + q);
    }
    return { q_e, v_e, x_h, u_r, v_r };
  }

  // X_h, equation (7), and U_r, equation (8); y_h are the terms that U_r sums.
  reward(v_e, theory = this.theory) {
    const weight = this.weights(theory), weighted = theory.x_agg === "weighted";
    const power = v_e.map((v, g) => (weighted ? weight[g] : 1) * v ** theory.zeta);
    const x_h = Float64Array.from(this.goalsOf, (goals) => goals.reduce((sum, g) => sum + power[g], 0));
    const y_h = x_h.map((x) => x ** -theory.xi);
    const sum = y_h.reduce((a, b) => a + b, 0);
    return { power, x_h, y_h, u_r: -((theory.u_agg === "mean" ? sum / this.H : sum) ** theory.eta) };
  }

  // Everything about a decision, as ExactResult.at says it.
  decision(s, t, theory = this.theory) {
    const policies = this.policies(s, t, theory);
    return { ...policies, ...this.outcomes(s, t, policies, theory) };
  }

  // V_h^e of all goals as solved.
  attainable(s, t) {
    const row = (this.at(t) * this.S + s) * this.G;
    return this.v_e.subarray(row, row + this.G);
  }

  // States that follow with their probability, by the humans' averages and the robots' policy.
  following(s, t) {
    const found = new Map(), { chance, pi_r } = this.policies(s, t);
    for (const [slot, successor, code] of this.transitions(s)) {
      const r = slot % this.R, p = (slot - r) / this.R, mass = chance[p] * pi_r[r] * this.prob[code];
      found.set(successor, (found.get(successor) ?? 0) + mass);
    }
    return found;
  }
}

function oneHot(ways) {
  const policy = new Float64Array(ways.length);
  policy[Math.max(0, ways.findIndex((n) => n > 0))] = 1;
  return policy;
}

function humanPolicy(q, ways, theory) {
  const infinite = theory.beta_h === "inf" || theory.beta_h === Infinity, known = [...q.keys()].filter((a) => ways[a]);
  const best = Math.max(...known.map((a) => q[a])), policy = new Float64Array(q.length);
  for (const a of known) {
    const gap = q[a] - best;
    policy[a] = infinite ? Number(gap >= -TIE * Math.max(1, Math.abs(best))) : Math.exp(theory.beta_h * gap);
  }
  const total = policy.reduce((a, b) => a + b, 0);
  for (const a of known) policy[a] = theory.nu / known.length + (1 - theory.nu) * policy[a] / total;
  return policy;
}

function robotPolicy(q_r, beta) {
  const logits = q_r.map((q) => -beta * Math.log(-q));
  const best = logits.reduce((a, b) => Number.isNaN(b) ? a : Math.max(a, b), -Infinity);
  const policy = logits.map((x) => Number.isNaN(x) ? 0 : Math.exp(x - best));
  const total = policy.reduce((a, b) => a + b, 0);
  return policy.map((x) => x / total);
}
