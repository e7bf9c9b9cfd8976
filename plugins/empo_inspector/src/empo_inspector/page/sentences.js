// Reasons in plain words, by the templates that Python uses; as empo_inspector.sentences.

const MOST_PARTS = 3, MOST_TIES = 5, LEAST_SHARE = 5, EQUAL = 1e-9;

const fill = (template, values) => template.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
const isTie = (one, other) => Math.abs(one - other) < EQUAL * Math.abs(one);

// Other actions that are as good as one.
export function tiesOf(q_r, first) {
  return [...q_r.keys()].filter((a) => a !== first && isTie(q_r[first], q_r[a]));
}

// The two actions that are compared where none, or only one, was chosen; null where there is but one.
export function compared({ q_r, pi_r }, first = null, second = null) {
  const ranked = [...q_r.keys()].filter((a) => !Number.isNaN(q_r[a])).sort((a, b) => pi_r[b] - pi_r[a] || a - b);
  const known = (a) => a !== null && ranked.includes(a);
  const other = known(second) ? second : null;
  const chosen = known(first) ? first : ranked.find((a) => a !== other) ?? ranked[0];
  const others = ranked.filter((a) => a !== chosen);
  if (!others.length) return null;
  const worse = others.find((a) => !isTie(q_r[chosen], q_r[a]));
  return [chosen, other !== null && other !== chosen ? other : worse ?? others[0]];
}

export function sentences(model, found, chances, stepsLeft, say) {
  const { q_r } = found.policies, ties = tiesOf(q_r, found.first), names = model.robotNames;
  const actions = {
    first: names[found.first], second: names[found.second],
    q_first: q_r[found.first].toPrecision(5), q_second: q_r[found.second].toPrecision(5),
  };
  if (stepsLeft === 1) return [say.last];
  if (ties.includes(found.second)) return [fill(say.equal, actions)];
  const asGood = ties.slice(0, MOST_TIES).map((a) => names[a]).join(", ");
  const told = asGood ? [fill(say.ties, { first: actions.first, others: asGood })] : [];
  return [fill(say.preferred, actions), ...told, ...reasons(model, found, chances, stepsLeft, say), when(found, say)];
}

function reasons(model, found, chances, stepsLeft, say) {
  const parts = totals(model, found);
  const order = [...parts.keys()].sort((a, b) => Math.abs(parts[b]) - Math.abs(parts[a]) || a - b).slice(0, MOST_PARTS);
  const named = order.filter((i) => Math.abs(parts[i]) >= LEAST_SHARE / 100 * Math.abs(found.gap));
  const rest = found.gap - named.reduce((sum, i) => sum + parts[i], 0);
  const shares = wholeShares([...named.map((i) => parts[i]), rest], found.gap), said = [];
  let isFirst = true;
  named.forEach((part, i) => {
    const kind = shares[i] < 0 ? "against" : isFirst ? "for" : "more";
    isFirst = isFirst && shares[i] < 0;
    const goal = part === parts.length - 1 ? say.ends : aboutGoal(model, part, chances, stepsLeft, say);
    said.push(fill(say[kind], { share: Math.abs(shares[i]), goal }));
  });
  const left = shares[shares.length - 1];
  return left ? [...said, fill(say.rest, { share: left })] : said;
}

// Contributions of goals, and of ends, over all steps.
export function totals(model, found) {
  const parts = Array.from({ length: model.G }, (_, g) => found.parts.reduce((sum, part) => sum + part[g], 0));
  return [...parts, found.ends.reduce((a, b) => a + b, 0)];
}

function aboutGoal(model, goal, [first, second], stepsLeft, say) {
  const [one, two] = [first[goal], second[goal]];
  const decimals = [2, 3, 4, 5, 6].find((n) => one.toFixed(n) !== two.toFixed(n));
  return fill(decimals === undefined ? say.unchanged : say.changed, {
    human: model.world.agents[model.goals[goal].human].name,
    attains: say.attains,
    goal: model.goals[goal].name,
    chance: model.theory.gamma_h === 1 ? say.chance : say.discounted_chance,
    first: one.toFixed(decimals ?? 2),
    second: two.toFixed(decimals ?? 2),
    within: stepsLeft === null ? "" : fill(say.within, { steps: stepsLeft }),
  });
}

function when(found, say) {
  const size = found.parts.map((part, k) => Math.abs(part.reduce((a, b) => a + b, 0) + found.ends[k]));
  const [begin, end] = busiest(size);
  if (end - begin > 1) return fill(say.steps, { from: begin + 1, to: end });
  return begin ? fill(say.one_step, { from: end }) : say.next_step;
}

function busiest(size) {
  const total = [0];
  for (const value of size) total.push(total[total.length - 1] + value);
  const half = total[size.length] / 2;
  for (let length = 1; length <= size.length; length++) {
    for (let begin = 0; begin + length <= size.length; begin++) {
      if (total[begin + length] - total[begin] >= half) return [begin, begin + length];
    }
  }
  return [0, size.length];
}

function wholeShares(parts, gap) {
  const exact = parts.map((part) => 100 * part / gap), shares = exact.map(Math.floor);
  const missing = 100 - shares.reduce((a, b) => a + b, 0);
  const order = [...parts.keys()].sort((a, b) => (shares[a] - exact[a]) - (shares[b] - exact[b]) || a - b);
  for (const part of order.slice(0, missing)) shares[part] += 1;
  return shares;
}
