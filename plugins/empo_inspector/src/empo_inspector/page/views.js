// The views beside the board: each returns elements for the selection of the page.

import { LeftOut, NOT_KEPT } from "./decision.js";
import { bar, button, choice, el, note, num, percent, short, signed, table } from "./parts.js";
import { compared, sentences, tiesOf, totals } from "./sentences.js";
import { explain, firstPassage } from "./why.js";

const SLIDERS = [
  ["beta_h", "β_h, rationality of humans", 0, 50, true], ["nu", "ν, weight of habit", 0, 1, true],
  ["gamma_h", "γ_h, humans' discount", 0.5, 1, true], ["beta_r", "β_r, rationality of robots", 0, 100],
  ["gamma_r", "γ_r, robots' discount", 0.5, 1], ["zeta", "ζ, preference for certainty", 0.1, 5],
  ["xi", "ξ, aversion to unequal power", 0.1, 5], ["eta", "η, aversion to unequal times", 0.1, 5],
];
const MOST_ROWS = 60;

export function robotView(app) {
  const { model, s, t } = app, solved = app.decision(), other = app.whatIf();
  const best = Math.max(...[...solved.q_r].filter((q) => !Number.isNaN(q)));
  const [first, second] = app.actions() ?? [-1, -1], order = [...solved.q_r.keys()];
  order.sort((a, b) => solved.pi_r[b] - solved.pi_r[a] || a - b);
  const rows = order.filter((r) => !Number.isNaN(solved.q_r[r])).map((r) => {
    const choose = (letter, chosen) => button(letter, () => app.select({ [letter]: r }),
      { class: "mini", "aria-pressed": String(chosen), key: `${letter}${r}`, "aria-label": `compare ${model.robotNames[r]} as ${letter}` });
    return el("tr", { class: r === first ? "chosen" : "" }, el("th", { scope: "row" }, model.robotNames[r]),
      el("td", {}, num(solved.pi_r[r]), bar(solved.pi_r[r])), el("td", {}, num(solved.q_r[r])),
      el("td", {}, num(solved.q_r[r] - best)),
      other && el("td", { class: "what-if" }, num(other.pi_r[r]), bar(other.pi_r[r], "alternative")),
      other && el("td", { class: "what-if" }, num(other.q_r[r])),
      el("td", {}, choose("a", r === first), choose("b", r === second)));
  });
  const gone = order.filter((r) => Number.isNaN(solved.q_r[r])).map((r) => model.robotNames[r]);
  const heads = ["action", "π_r", "Q_r", "below the best", ...other ? ["π_r, what if", "Q_r, what if"] : [], "compare"];
  const values = [["V_r", solved.v_r, other?.v_r], ["U_r", solved.u_r, other?.u_r],
    ...model.world.humans.map((agent, h) => [`X of ${model.world.agents[agent].name}`, solved.x_h[h], other?.x_h[h]])];
  return [
    el("p", { class: "sentence", id: "sentence", "data-busy": "" }, "…"), app.banner(),
    table("Robots' actions, likeliest first", heads, rows),
    gone.length ? note(`Not available: ${gone.join(", ")}.`) : null,
    table("Values here", ["", "solved", ...other ? ["what if"] : []],
      values.map(([name, x, y]) => [name, num(x), ...other ? [num(y)] : []])),
    whatIf(app), app.later("sentence", async (pause) => [(await reasonsOf(app, pause)).join(" ")], [s, t, first, second]),
  ];
}

async function reasonsOf(app, pause) {
  const pair = app.actions();
  if (!pair) return ["There is only one action here."];
  if (app.stepsLeft() === 1) return [app.say.last];
  const found = await app.reasons(pair, pause), { q_e } = app.decision(), G = app.model.G;
  const chances = pair.map((r) => q_e.subarray(r * G, (r + 1) * G));
  return sentences(app.model, found, chances, app.stepsLeft(), app.say);
}

function whatIf(app) {
  const { model } = app, now = app.theory ?? model.theory, fixed = !model.followsParameters();
  const change = (name, value) => app.assume({ [name]: value });
  const sliders = SLIDERS.map(([name, label, low, high, early]) => {
    const solved = model.theory[name] === "inf" ? Infinity : model.theory[name];
    const value = now[name] === "inf" ? Infinity : now[name], top = Math.max(high, Number.isFinite(solved) ? solved : 0);
    const said = el("output", {}, short(value));
    const input = el("input", {
      type: "range", min: low, max: top, step: (top - low) / 500, value: Math.min(value, top), key: `if-${name}`,
      disabled: early && fixed, "aria-valuetext": short(value),
      oninput: (event) => { said.textContent = short(Number(event.target.value)); change(name, Number(event.target.value)); },
    });
    return el("label", { class: "field slider" }, el("span", {}, label, " ", said), input);
  });
  const weights = model.goals.map((goal, g) => el("label", { class: "field" },
    el("span", {}, `${model.world.agents[goal.human].name}: ${goal.name}`),
    el("input", { type: "number", min: 0, step: "any", value: model.weights(now)[g], key: `weight-${g}`,
      onchange: (event) => {
        const weight = Number(event.target.value), all = [...model.weights(now)];
        if (weight >= 0 && event.target.value !== "") all[g] = weight;
        if (model.goalsOf.every((own) => own.some((i) => all[i] > 0))) change("weights", all);
      } })));
  return el("details", { class: "box", open: app.opened.has("what-if"), ontoggle: app.remember("what-if") },
    el("summary", { key: "what-if" }, "What if, just here"),
    note("These change this decision only. The values one step later stay as they were solved."),
    fixed ? note("Humans act by a prior of their own here, so β_h, ν and γ_h of equations (1)–(3) are not known.") : null,
    el("div", { class: "fields" }, sliders, choice("humans expect of the robots", [["pessimistic", "the worst"], ["optimistic", "the best"]],
      now.robot_model, (value) => change("robot_model", value), "if-robot_model")),
    el("details", {}, el("summary", {}, "Weights of goals"), el("div", { class: "fields" }, weights)),
    button("As solved", () => app.assume(null), { key: "as-solved", disabled: !app.theory }));
}

export function successorsView(app) {
  const { model, s, t } = app, { world } = model, { chance, pi_r } = app.decision(), found = [];
  let k = model.offsets[s * model.J];
  for (const [slot, successor, code] of model.transitions(s)) {
    const r = slot % model.R, p = (slot - r) / model.R;
    found.push({ joint: model.joint[slot], p, r, successor, item: k++, mass: chance[p] * pi_r[r] * model.prob[code], code });
  }
  const filter = app.filter, digit = (j, i) => Math.floor(j / world.strides[i]) % world.agents[i].actions.length;
  const fits = found.filter(({ joint }) => world.agents.every((_, i) => (filter[i] ?? -1) < 0 || filter[i] === digit(joint, i)));
  fits.sort((x, y) => y.mass - x.mass || x.item - y.item);
  const rows = fits.slice(0, MOST_ROWS).map(({ joint, successor, mass, code, item }) => {
    const kept = successor !== NOT_KEPT;
    const goals = kept ? model.goals.filter((_, g) => model.has(successor, g) && !model.has(s, g)).map((goal) => goal.name) : [];
    return [app.jointName(joint), num(mass), num(model.prob[code]), ...app.unitSteps ? [] : [num(model.duration[code])],
      kept ? el("button", { type: "button", class: "go", key: `go-${item}`, onclick: () => app.step(successor, joint) },
        app.board.thumbnail(successor, 104), el("span", {}, `${model.number[successor]}${app.isOver(successor, t + 1) ? ", over" : ""}`)) : "not kept",
      goals.join(", ") || "–"];
  });
  const pick = world.agents.map((agent, i) => choice(agent.name, [[-1, "any action"], ...agent.actions.map((name, a) => [a, name])],
    filter[i] ?? -1, (value) => { filter[i] = Number(value); app.show(); }, `filter-${i}`));
  const heads = ["joint action", "probability here", "of the joint action", ...app.unitSteps ? [] : ["duration"], "next state", "goals it reaches"];
  return [el("div", { class: "fields" }, pick), table("Next states, likeliest first", heads, rows),
    fits.length > MOST_ROWS ? note(`${fits.length - MOST_ROWS} less likely ones are not listed; choose actions above.`) : null,
    note("“Probability here” is that of the robots' policy and of humans who act by their averages over goals.")];
}

export function whyView(app) {
  const { model } = app, pair = app.actions();
  if (!pair) return [note("There is only one action here, so there is nothing to compare.")];
  const { q_r } = app.decision(), known = [...q_r.keys()].filter((r) => !Number.isNaN(q_r[r])).map((r) => [r, model.robotNames[r]]);
  const pick = (letter, value) => choice(letter === "a" ? "why" : "rather than", known, value,
    (r) => app.select({ [letter]: Number(r) }), `why-${letter}`);
  return [el("div", { class: "fields" }, pick("a", pair[0]), pick("b", pair[1])),
    el("div", { id: "reasons", "data-busy": "", "aria-live": "polite" }, note("Working it out …")),
    ...shares(app), app.later("reasons", (pause) => reasonTables(app, pair, pause), [app.s, app.t, ...pair])];
}

async function reasonTables(app, pair, pause) {
  const { model } = app, told = await reasonsOf(app, pause), found = await app.reasons(pair, pause);
  const parts = totals(model, found), steps = found.parts.map((part, k) => part.reduce((a, b) => a + b, 0) + found.ends[k]);
  const { q_e } = app.decision(), G = model.G, tied = tiesOf(found.policies.q_r, pair[0]).includes(pair[1]);
  const share = (x) => tied ? "–" : percent(x / found.gap).replace("-", "−"), most = (all) => Math.max(...all.map(Math.abs));
  const rest = found.gap - parts.reduce((a, b) => a + b, 0), names = pair.map((r) => model.robotNames[r]);
  const goals = parts.map((part, g) => [part, g]).sort((x, y) => Math.abs(y[0]) - Math.abs(x[0]));
  const rows = goals.filter(([part, g]) => g < G || part !== 0).map(([part, g]) => {
    const name = g < G ? `${model.world.agents[model.goals[g].human].name}: ${model.goals[g].name}` : "ends of episodes";
    const after = pair.map((r) => g < G ? num(q_e[r * G + g]) : "–");
    return [name, num(part), share(part), signed(part, most(parts)), ...after];
  });
  return [el("p", { class: "sentence" }, told.join(" ")),
    table("Which goals make the difference", ["goal", "part", "share", "", `V^e after ${names[0]}`, `V^e after ${names[1]}`], rows),
    table("When it counts: steps from now", ["step", "part", "share", ""], steps.map((d, k) => [String(k + 1), num(d), share(d), signed(d, most(steps))])),
    el("p", { class: "note" }, "Parts sum to the difference of Q_r, ", num(found.gap), ": left over is ", num(rest),
      ". They are exact: secants of equations (7) and (8) from this state, in which U_r is ", num(app.decision().u_r), ".")];
}

function shares(app) {
  const { model } = app, here = model.reward(app.decision().v_e), all = here.y_h.reduce((a, b) => a + b, 0);
  const humans = model.world.humans.map((agent, h) => [model.world.agents[agent].name, num(here.x_h[h]),
    num(Math.log2(here.x_h[h])), percent(here.y_h[h] / all), bar(here.y_h[h] / all)]);
  const goals = model.goals.map((goal, g) => [`${model.world.agents[goal.human].name}: ${goal.name}`,
    num(here.power[g]), percent(here.power[g] / here.x_h[model.whose[g]]), bar(here.power[g] / here.x_h[model.whose[g]])]);
  return [table("Who weighs most in U_r here", ["human", "X_h", "bits", "share", ""], humans),
    table("What power is made of here", ["goal", "term of X_h", "share", ""], goals)];
}

export function humanView(app) {
  const { model, s, t, goal: g } = app, { A } = model, now = app.decision(), h = model.whose[g];
  const agent = model.world.agents[model.world.humans[h]], fixed = !model.followsParameters();
  const rows = [...agent.actions.keys()].filter((a) => now.marginal[h][a] > 0 || now.pi_h[g * A + a] > 0 || now.q_m[g * A + a] > 0).map((a) => {
    const replies = new Map();
    for (let p = 0; p < model.P; p++) {
      const r = now.reply[p * model.G + g];
      if (model.humanDigits[p][h] === a && r >= 0 && !replies.has(r)) replies.set(r, model.joint[p * model.R + r]);
    }
    const links = [...replies].slice(0, 3).map(([r, joint]) => {
      const next = model.successor[model.offsets[s * model.J + joint]];
      return button(model.robotNames[r], () => app.step(next, joint), { class: "link", disabled: next === NOT_KEPT, key: `reply-${a}-${r}` });
    });
    return [agent.actions[a], fixed ? "–" : num(now.q_m[g * A + a]), num(now.pi_h[g * A + a]), bar(now.pi_h[g * A + a]),
      num(now.marginal[h][a]), fixed ? "–" : el("span", { class: "row" }, links)];
  });
  const hopeless = !fixed && now.q_m.subarray(g * A, (g + 1) * A).every((q) => q === 0) && !model.has(s, g);
  const v_m = fixed ? NaN : model.stored("v_m", s, t, g), word = model.theory.gamma_h === 1 ? "chance" : "discounted chance";
  return [
    el("p", {}, `${agent.name} pursues ${model.goals[g].name}. `, `V^e, the ${word} of attaining it: `, num(now.v_e[g]), ". V^m, what it hopes for: ", num(v_m), "."),
    model.has(s, g) ? note("The goal is achieved here, so the human takes its first available action.") : null,
    hopeless ? note("The human expects that the robot can always prevent this, and acts without preference.") : null,
    table(`Actions of ${agent.name}`, ["action", "Q^m", "π_h", "", "average over goals", `${model.theory.robot_model === "optimistic" ? "best" : "worst"} reply it expects`], rows),
    el("div", { id: "passage", "data-busy": "", "aria-live": "polite" }, note("Working out when the goal is first reached …")),
    app.later("passage", (pause) => passage(app, g, word, pause), [s, t, g]),
  ];
}

async function passage(app, g, word, pause) {
  const curve = await firstPassage(app.model, app.s, app.t, g, pause), most = Math.max(...curve, 1e-300);
  let total = 0;
  const rows = curve.map((f, k) => { total += f; return [String(k + 1), num(f), bar(f / most), num(total)]; });
  return [table("When the goal is first reached: steps from now", ["step", word, "", "so far"], rows),
    note("The last sum is V^e: an identity of the solved model.")];
}

export function findView(app) {
  const { model, board } = app, { world } = model, at = (n, t) => app.unbounded ? `${n}` : `${n} at ${t}`;
  const go = (s, t, key) => button(at(model.number[s], t), () => app.goTo(s, t), { class: "link", key });
  const decisive = model.header.decisive.map(([s, t, chance, gap], i) => [String(i + 1), go(s, t, `d${i}`), board.thumbnail(s, 56), num(chance), num(gap), num(chance * gap)]);
  const cells = board.isGrid ? world.agents.map((agent, i) => el("label", { class: "field" }, el("span", {}, `${agent.name} at x,y`),
    el("input", { type: "text", size: 6, inputmode: "numeric", placeholder: "any", value: app.search.at[i] ?? "", key: `at-${i}`,
      onchange: (event) => { app.search.at[i] = event.target.value; app.show(); } }))) : [];
  const goals = choice("achieved goal", [[-1, "any"], ...model.goals.map((goal, g) => [g, `${world.agents[goal.human].name}: ${goal.name}`])],
    app.search.goal, (value) => { app.search.goal = Number(value); app.show(); }, "search-goal");
  const words = el("label", { class: "field" }, el("span", {}, "number, or words of the state"), el("input", { type: "search", value: app.search.text, key: "search-text",
    onchange: (event) => { app.search.text = event.target.value; app.show(); } }));
  const hits = app.found(MOST_ROWS).map(([s, t], i) => [go(s, t, `hit${i}`), board.thumbnail(s, 56), num(model.alive(s, t) ? model.stored("v_r", s, t) : NaN), app.isOver(s, t) ? "over" : ""]);
  return [el("h3", {}, "Search"), el("div", { class: "fields" }, cells, goals, words),
    hits.length ? table(`States found${hits.length === MOST_ROWS ? `, the first ${MOST_ROWS}` : ""}`, ["state", "", "V_r", ""], hits) : note("No state fits."),
    decisive.length ? table("The most decisive states", ["", "state", "", "chance of being there", "gap of Q_r", "product"], decisive) : note("No state is decisive."),
    note("Chance of being there at that time, when humans act by their averages over goals (not pursuing one), times the gap between the best and the second best Q_r, relative to the best.")];
}

export function playView(app) {
  const { model, game } = app, { world } = model, agents = world.agents.map((agent, i) => [i, `${agent.name} (${agent.role})`]);
  if (!game) {
    const draft = app.draft, pick = (name, label, options) => choice(label, options, draft[name], (value) => { draft[name] = Number(value); }, `play-${name}`);
    const seed = el("label", { class: "field" }, el("span", {}, "seed"), el("input", { type: "number", min: 0, step: 1, value: draft.seed, key: "play-seed",
      onchange: (event) => { draft.seed = Math.max(0, Math.floor(Number(event.target.value) || 0)); } }));
    const goals = model.goalsOf.map((own, h) => choice(`goal of ${world.agents[world.humans[h]].name}`, [[-1, "drawn by weight"], ...own.map((g) => [g, model.goals[g].name])],
      draft.goals[h] ?? -1, (value) => { draft.goals[h] = Number(value); }, `play-goal-${h}`));
    const guess = el("label", { class: "field check" }, el("input", { type: "checkbox", checked: draft.guess, key: "guess", onchange: (event) => { draft.guess = event.target.checked; } }), el("span", {}, "hide the robots' policy until I have moved"));
    return [note("Be one of the agents. The others draw their actions from their policies, by the seed."),
      el("div", { class: "fields" }, pick("first", "I am", agents), pick("second", "and also (keys W A S D)", [[-1, "nobody else"], ...agents]), goals, seed, guess),
      button("Play from here", () => app.startGame(), { class: "primary", key: "play-start" }),
      button("Play from the start", () => app.startGame(true), { key: "play-start-0" })];
  }
  const over = app.isOver(app.s, app.t), mine = [game.first, game.second].filter((i) => i >= 0);
  const moves = mine.map((i, n) => el("fieldset", {}, el("legend", {}, world.agents[i].name), world.agents[i].actions.map((name, a) =>
    button(`${app.keyName(i, a, n)} ${name}`, () => app.act(i, a), { key: `act-${i}-${a}`, disabled: over, "aria-pressed": String(game.told[i] === a) }))));
  const goals = world.humans.map((agent, h) => `${world.agents[agent].name}: ${model.goals[game.episode.goals[h]].name}`);
  return [el("p", {}, over ? "The episode is over. " : "Your move. ", `Goals: ${goals.join("; ")}.`), moves,
    game.said ? el("p", { class: "note", role: "alert" }, game.said) : null,
    game.last ? el("p", {}, `Last step: ${game.last}.`) : null,
    game.guess && game.before ? table("The robots' policy before that step", ["action", "π_r", ""], [...game.before.keys()].filter((r) => game.before[r] > 0).map((r) => [model.robotNames[r], num(game.before[r]), bar(game.before[r])])) : null,
    el("div", { class: "row" }, button("Undo", () => app.undo(), { key: "undo", disabled: !game.moves.length }), button("Again", () => app.again(), { key: "again" }), button("Stop", () => app.stopGame(), { key: "play-stop" })),
    el("label", { class: "field" }, el("span", {}, "Record of this episode"), el("textarea", { readonly: true, rows: 4, key: "record", id: "record" }, JSON.stringify(app.record())))];
}

export function aboutView(app) {
  const { model } = app, { header } = model, { kept } = header, plain = (value) => typeof value === "object" && value !== null ? JSON.stringify(value) : String(value);
  const rows = (data) => Object.entries(data).map(([key, value]) => [key, plain(value)]);
  return [table("Theory", ["parameter", "value"], rows(model.theory)),
    table("Part of the run that is kept here", ["", ""], [["states", `${kept.states} of ${kept.of}`], ["times", model.horizon === null ? "no horizon" : `${kept.first_time} to ${kept.first_time + kept.times - 1}`], ["rule", kept.rule], ["numbers", "64 bits, as solved"]]),
    table("Where it comes from", ["", ""], rows(header.provenance)),
    table("Keys", ["key", "what it does"], [["← →", "one step back or on"], ["Home End", "first and last step"], ["1 … 7", "the views"], ["P", "play the steps, or pause"], ["while playing", "arrows, W A S D for a second agent, digits for other actions; Backspace takes back"]]),
    el("p", { class: "note" }, "V_r, Q_r, U_r: the robots' value, the value of their actions, and their reward, all negative: closer to 0 is better. A state in which the episode is over has the best number of all, about 0, and is grey. X_h: a human's power. V^e: what humans can attain; V^m: what they hope for. The documentation of EMPO has more: docs/how-to/inspect_a_run.md, docs/explanation/conventions.md."),
    el("p", { class: "note" }, "Symbols and equations: arXiv 2508.00159v2. This page is one file; it asks nothing of the network.")];
}

export function trouble(error) {
  if (!(error instanceof LeftOut)) throw error;
  return [note(error.message)];
}
