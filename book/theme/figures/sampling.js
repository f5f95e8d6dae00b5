// One row of the tutor's logits, filtered and drawn from as solutions/sampler does it: temperature, top-k,
// top-p, min-p, then Gumbel noise and argmax. tests/book/test_figure_sampling.py holds this to that.
'use strict';

const sampling = (() => {
  const cutFrom = (values, out, why, drop) => {
    values.forEach((value, token) => {
      if (!out[token] && drop(value, token)) out[token] = why;
    });
  };

  /** Probabilities of the values that are not out; zero for those that are. */
  function softmax(values, out) {
    const best = values.reduce((most, value, token) => (out[token] ? most : Math.max(most, value)), -Infinity);
    const weights = values.map((value, token) => (out[token] ? 0 : Math.exp(value - best)));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    return weights.map((weight) => weight / total);
  }

  /**
   * logits: [vocab]. Returns, each [vocab]: scaled, the logits over the temperature, largest 0; out, which
   * filter ruled a token out ('' if none did); probs, what remains. Temperature 0 is greedy: no filter can
   * remove the best token, and the first of equals wins.
   */
  function filter(logits, { temperature, topK = 0, topP = 1, minP = 0 }) {
    const best = Math.max(...logits);
    const scaled = logits.map((logit) => (logit - best) / (temperature || 1));
    const out = logits.map(() => '');
    if (temperature === 0) {
      const winner = logits.indexOf(best);
      cutFrom(scaled, out, 'greedy', (_, token) => token !== winner);
      return { scaled, out, probs: softmax(scaled, out) };
    }
    if (topK > 0 && topK < logits.length) {
      const least = [...scaled].sort((a, b) => b - a)[topK - 1]; // tied with the k-th: kept
      cutFrom(scaled, out, 'top-k', (value) => value < least);
    }
    if (topP < 1) {
      const probs = softmax(scaled, out);
      const order = [...probs.keys()].sort((a, b) => probs[b] - probs[a]);
      let before = 0; // the probability of all that are likelier; the first token always stays
      const dropped = new Set(order.filter((token, rank) => {
        const drop = rank > 0 && before >= topP;
        before += probs[token];
        return drop;
      }));
      cutFrom(scaled, out, 'top-p', (_, token) => dropped.has(token));
    }
    const floor = Math.log(minP); // of p / p_max, whose logarithm is the scaled logit; log(0): off
    cutFrom(scaled, out, 'min-p', (value) => value < floor);
    return { scaled, out, probs: softmax(scaled, out) };
  }

  /** lowbias32 of C. Wellons' hash prospector (2018): a number of 32 bits, scrambled. */
  function hash32(x) {
    x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
    x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
    return (x ^ (x >>> 16)) >>> 0;
  }

  /** Standard Gumbel noise of (seed, step, token), in float32 as the reference has it; seed < 2 ** 32. */
  function gumbel(seed, step, token) {
    const bits = hash32(hash32(step ^ hash32(seed) ^ 0x9e3779b9) ^ hash32(token));
    const uniform = Math.fround(Math.fround(bits) + 0.5) * 2 ** -32;
    return -Math.log(-Math.log1p(-Math.min(uniform, 1 - 2 ** -24)));
  }

  /** The token that wins at each of the steps from `first` up to `end`. */
  function draw({ scaled, out }, seed, first, end) {
    const kept = [...out.keys()].filter((token) => !out[token]);
    return Array.from({ length: end - first }, (_, index) => {
      let winner = -1, most = -Infinity;
      for (const token of kept) {
        const value = scaled[token] + gumbel(seed, first + index, token);
        if (value > most) [winner, most] = [token, value];
      }
      return winner;
    });
  }

  return { filter, draw, gumbel };
})();

(() => {
  const { html } = yaie;
  const STYLE = `
    figure.moving .stage .ys thead, figure.moving .stage .ys tbody tr { background: none; border: 0; }
    figure.moving .stage table.ys { width: 100%; border-collapse: collapse; font-size: 13px; }
    .ys th, .ys td { border: 0; padding: 1px 6px; background: none; text-align: right; white-space: nowrap;
      font-variant-numeric: tabular-nums; }
    .ys thead th { font-size: 12px; padding-bottom: 4px; }
    .ys tbody th { font-family: var(--mono-font); font-weight: normal; }
    .ys .ys-bar { width: 100%; min-width: 90px; padding: 1px 0; }
    .ys-track { position: relative; display: block; height: 16px; border-inline-start: 1px solid var(--y-line); }
    .ys-track > * { position: absolute; inset-inline-start: 0; box-sizing: border-box; }
    .ys-track > .ys-now { inset-block: 4px; background: var(--y-blue); }
    .ys-track > .ys-was { inset-block: 1px; border: 1.5px solid var(--y-line); border-inline-start: 0; }
    .ys-cut .ys-was { border-style: dashed; }
    .ys-track > .ys-share { inset-block: -2px; width: 0; border-inline-start: 3px solid var(--y-orange); }
    .ys-cut th { text-decoration: line-through; }
    .ys tbody tr.ys-last th { font-weight: bold; }
    .ys-key { display: flex; flex-wrap: wrap; gap: 0.2em 1.2em; font-size: 12px; margin-top: 0.5em; }
    .ys-key i { display: inline-block; width: 1.4em; height: 0.9em; margin-inline-end: 0.4em; box-sizing: border-box; }
    .ys-key .ys-share { width: 0; border-inline-start: 3px solid var(--y-orange); }
    .ys-key .ys-now { height: 0.5em; background: var(--y-blue); }
    .ys-key .ys-was { border: 1.5px solid var(--y-line); }
    @media (max-width: 480px) {
      figure.moving .stage table.ys { font-size: 12px; }
      figure.moving .stage .ys :is(th, td) { padding: 0 2px; line-height: 1.5; }
      .ys .ys-bar { min-width: 46px; }
    }`;
  document.head.append(html('style', {}, STYLE));

  const percent = (share) => (share > 0 && share < 0.001 ? '<0.1%' : `${(100 * share).toFixed(1)}%`);
  const word = (text) => text.replace(/^ /, '␣'); // a token that begins a word has its space in front

  /** Draws of this page so far, by figure and setting: one more draw must not repeat all others. */
  const drawn = new WeakMap();
  function draws(data, filtered, values) {
    const key = JSON.stringify({ ...values, draws: 0 });
    let kept = drawn.get(data);
    if (kept?.key !== key) drawn.set(data, kept = { key, winners: [] });
    kept.winners.push(...sampling.draw(filtered, values.seed, kept.winners.length, values.draws));
    return kept.winners.slice(0, values.draws);
  }

  function bar(was, now, share, key) {
    const at = (part) => `${(100 * part).toFixed(2)}%`;
    return html('td', { class: 'ys-bar', 'aria-hidden': 'true' }, html('span', { class: 'ys-track' },
      html('span', { class: 'ys-now', style: `width: ${at(now)}`, 'data-key': `now-${key}` }),
      html('span', { class: 'ys-was', style: `width: ${at(was)}` }),
      share > 0 ? html('span', { class: 'ys-share', style: `left: calc(${at(share)} - 1.5px)`, 'data-key': `share-${key}` }) : null));
  }

  /** One token, or all others together. mark: which filter cut it; count: its draws, or null. */
  function row({ text, was, now, mark, count, last }, total) {
    const classes = [mark && 'ys-cut', last && 'ys-last'].filter(Boolean).join(' ');
    return html('tr', { class: classes || null, 'data-thing': mark || 'kept' },
      html('th', { scope: 'row' }, last ? '► ' : '', text), bar(was, now, total ? count / total : 0, text),
      html('td', {}, percent(was)), html('td', {}, mark ? `✕ ${mark}` : percent(now)),
      total ? html('td', {}, count) : null);
  }

  function table(rows, total) {
    const head = ['token', null, 'before', 'after', ...(total ? ['sampled'] : [])].map((name) =>
      name ? html('th', { scope: 'col' }, name) : html('td', { 'aria-hidden': 'true' }));
    return html('table', { class: 'ys' }, html('thead', {}, html('tr', {}, head)),
      html('tbody', {}, rows.map((each) => row(each, total))));
  }

  function legend(total) {
    const entry = (name, text) => html('span', {}, html('i', { class: name }), text);
    return html('div', { class: 'ys-key', 'aria-hidden': 'true' },
      entry('ys-was', 'before: temperature 1, no filter'), entry('ys-now', 'after'),
      total ? entry('ys-share', `share of ${total} samples`) : null);
  }

  function say({ out, probs }, winners, named, seed) {
    const counts = { greedy: 0, 'top-k': 0, 'top-p': 0, 'min-p': 0, '': 0 };
    for (const why of out) counts[why] += 1;
    const { '': left, ...removals } = counts;
    const cuts = Object.entries(removals).filter(([, count]) => count);
    const removed = cuts.map(([why, count]) => `${why} removes ${count.toLocaleString('en')}`).join(', ');
    const text = named.get(winners.at(-1));
    const drawn = text ? `“${word(text)}”` : 'one of the others';
    return `${left.toLocaleString('en')} of ${out.length.toLocaleString('en')} tokens can be sampled`
      + `${removed && `: ${removed}`}. The likeliest has ${percent(Math.max(...probs))}.`
      + (winners.length ? ` Sample ${winners.length} with seed ${seed} gives ${drawn}.` : '');
  }

  yaie.controlled('sampling', {
    plays: 'temperature',
    // The rows are the same for all values; only what is said has more or fewer words.
    tallest: () => [{}, { draws: 300 }, { temperature: 1.5, topK: 20, topP: 0.8, minP: 0.2, draws: 300 }],
    controls: () => [
      { name: 'temperature', label: 'temperature', min: 0, max: 2, step: 0.05, value: 1,
        format: (value) => (value ? value.toFixed(2) : '0 (greedy)') },
      { name: 'topK', label: 'top-k', min: 0, max: 40, step: 1, value: 0, format: (value) => value || 'off' },
      { name: 'topP', label: 'top-p', min: 0.05, max: 1, step: 0.05, value: 1,
        format: (value) => (value < 1 ? value.toFixed(2) : 'off') },
      { name: 'minP', label: 'min-p', min: 0, max: 0.5, step: 0.01, value: 0,
        format: (value) => (value ? value.toFixed(2) : 'off') },
      { name: 'draws', label: 'samples', min: 0, max: 300, step: 1, value: 0 },
      { name: 'seed', label: 'Another seed', button: true, value: 0 },
    ],
    draw(stage, values, data) {
      data.before ??= sampling.filter(data.logits, { temperature: 1 }).probs;
      const { before } = data;
      const after = sampling.filter(data.logits, values);
      const winners = draws(data, after, values);
      const counts = new Map();
      winners.forEach((token) => counts.set(token, (counts.get(token) ?? 0) + 1));

      const named = new Map(data.named);
      const last = winners.at(-1);
      const rows = data.named.map(([token, text]) => ({
        text: word(text), was: before[token], now: after.probs[token], mark: after.out[token],
        count: counts.get(token) ?? 0, last: token === last,
      }));
      const sum = (name) => rows.reduce((total, each) => total + each[name], 0);
      const cuts = new Set(after.out.filter((_, token) => !named.has(token)));
      const left = cuts.has('');
      const others = data.logits.length - rows.length;
      rows.push({
        text: `${others.toLocaleString('en')} others`, was: 1 - sum('was'), now: left ? 1 - sum('now') : 0,
        mark: left ? '' : [...cuts].join(', '), count: winners.length - sum('count'), last: last != null && !named.has(last),
      });
      stage.append(table(rows, winners.length), legend(winners.length));
      return say(after, winners, named, values.seed);
    },
  });
})();
