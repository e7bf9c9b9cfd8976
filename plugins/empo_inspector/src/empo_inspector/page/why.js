// Reasons: the difference of two Q_r, split exactly over steps, humans and goals; as empo_inspector.why.

import { LeftOut, NOT_KEPT } from "./decision.js";

const NEAR = 1e-8;

export function secant(value, reference, exponent) {
  const ratio = value / reference - 1;
  const slope = Math.abs(ratio) < NEAR
    ? exponent * (1 + (exponent - 1) / 2 * ratio)
    : Math.expm1(exponent * Math.log1p(ratio)) / ratio;
  return reference ** (exponent - 1) * slope;
}

// U_r of a state minus U_r of a reference, split over goals.
export function goalGains(model, there, here, theory = model.theory) {
  const humans = theory.u_agg === "mean" ? model.H : 1;
  const mean = (numbers) => numbers.reduce((a, b) => a + b, 0) / humans;
  const outer = secant(mean(there.y_h), mean(here.y_h), theory.eta);
  const inner = there.x_h.map((x, h) => secant(x, here.x_h[h], -theory.xi));
  return there.power.map((q, g) => -outer * inner[model.whose[g]] * (q - here.power[g]) / humans);
}

// Goals and ends of each future step; `pause` is awaited now and then and may end the work by throwing.
export async function explain(model, s, t, first, second, pause = async () => {}) {
  const policies = model.policies(s, t), here = model.reward(model.outcomes(s, t, policies).v_e);
  const parts = [], ends = [], steps = model.horizon === null ? 0 : 1;
  const chosen = [first, second].map((a) => policies.pi_r.map((_, r) => Number(r === a)));
  let masses = advance(model, new Map([[s, [1, 1]]]), () => [policies.chance, chosen]), time = t, done = 0;
  while (masses.size) {
    time += steps;
    const part = new Float64Array(model.G), going = new Map();
    let end = 0;
    for (const [state, mass] of masses) {
      const difference = mass[0] - mass[1];
      if (!model.alive(state, time)) {
        end += model.theory.terminal_value * difference;
        continue;
      }
      if (++done % 20 === 0) await pause();
      const found = model.policies(state, time), values = model.reward(model.attainable(state, time));
      const weight = difference * found.pi_r.reduce((sum, p, r) => sum + p * found.accrued[r], 0);
      goalGains(model, values, here).forEach((gain, g) => { part[g] += weight * gain; });
      end += weight * here.u_r;
      going.set(state, mass);
    }
    parts.push(part);
    ends.push(end);
    masses = advance(model, going, (state) => {
      const { chance, pi_r } = model.policies(state, time);
      return [chance, [pi_r, pi_r]];
    });
  }
  return { first, second, gap: policies.q_r[first] - policies.q_r[second], parts, ends, policies };
}

// The states that follow, with the discounted mass of both processes.
function advance(model, masses, policy) {
  const found = new Map(), { robot } = model.tables(model.theory);
  for (const [s, mass] of masses) {
    const [chance, actions] = policy(s);
    for (const [slot, successor, code] of model.transitions(s)) {
      const r = slot % model.R, share = chance[(slot - r) / model.R] * model.prob[code] * robot[code];
      const one = mass[0] * actions[0][r] * share, two = mass[1] * actions[1][r] * share;
      if (one === 0 && two === 0) continue;
      if (successor === NOT_KEPT) throw new LeftOut("Some states that may follow are not kept in this file.");
      const total = found.get(successor);
      if (total) { total[0] += one; total[1] += two; } else found.set(successor, [one, two]);
    }
  }
  return found;
}

// The chance that a goal is first reached after k + 1 steps, discounted as V_h^e is: its sum is V_h^e.
export async function firstPassage(model, s, t, g, pause = async () => {}) {
  const h = model.whose[g], { human } = model.tables(model.theory), curve = [];
  let masses = new Map([[s, 1]]), time = t, done = 0;
  while (masses.size) {
    const found = new Map();
    let reached = 0;
    for (const [state, mass] of masses) {
      if (!model.alive(state, time)) continue;
      if (++done % 20 === 0) await pause();
      const { pi_h, pi_r, marginal } = model.policies(state, time), others = model.product(marginal, h);
      for (const [slot, successor, code] of model.transitions(state)) {
        const r = slot % model.R, p = (slot - r) / model.R, own = pi_h[g * model.A + model.humanDigits[p][h]];
        const share = mass * own * others[p] * pi_r[r] * model.prob[code];
        if (share === 0) continue;
        if (successor === NOT_KEPT) throw new LeftOut("Some states that may follow are not kept in this file.");
        if (model.has(successor, g)) reached += share;
        else found.set(successor, (found.get(successor) ?? 0) + share * human[code]);
      }
    }
    if (curve.length === 0 || found.size || reached) curve.push(reached);
    masses = found;
    time += model.horizon === null ? 0 : 1;
  }
  return curve;
}
