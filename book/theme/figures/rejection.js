// Top-p by rejection: who leads the race above the bound, what lies above the leader, where the bound goes.
// Noise is that of sampling.js, which book.toml lists before this file.
'use strict';

const rejection = (() => {
  const LOGITS = [0.3, 2.1, -0.6, 1.2, 0.8, 2.8, -1.5, 1.7, 0.1, -0.2, 1.0, 2.4, -0.9, 0.6, 1.5, -2.0];

  function softmax(logits) {
    const weights = logits.map(Math.exp);
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    return weights.map((weight) => weight / total);
  }

  /** The rounds of one draw: low, the candidate above it, the mass above the candidate, whether it stays. */
  function rounds(logits, seed, p) {
    const probs = softmax(logits);
    const scores = logits.map((logit, token) => logit + sampling.gumbel(seed, 0, token));
    const found = [];
    let low = -Infinity, open = true;
    while (open) {
      const above = [...logits.keys()].filter((token) => logits[token] > low);
      const candidate = above.reduce((best, token) => (scores[token] > scores[best] ? token : best), above[0]);
      const mass = above.reduce((sum, token) => sum + (logits[token] > logits[candidate] ? probs[token] : 0), 0);
      open = mass >= p && mass > 0;
      found.push({ low, candidate, mass, open, racing: above.length });
      if (open) low = logits[candidate];
    }
    return found;
  }

  return { LOGITS, softmax, rounds };
})();

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const [TOP, HIGH] = [16, 170];

  yaie.controlled('rejection', {
    plays: 'round',
    controls: () => [
      { name: 'p', label: 'p', min: 0.05, max: 0.95, step: 0.05, value: 0.5 },
      { name: 'seed', label: 'seed', min: 1, max: 40, step: 1, value: 37 },
      { name: 'round', label: 'round', min: 1, max: 6, step: 1, value: 1 },
    ],
    draw(stage, { p, seed, round }) {
      const { LOGITS, softmax, rounds } = rejection;
      const probs = softmax(LOGITS), all = rounds(LOGITS, seed, p);
      const now = all[Math.min(round, all.length) - 1];
      const most = Math.max(...probs);
      const width = room(stage), left = isNarrow(stage) ? 30 : 36;
      const step = (width - left - 2) / LOGITS.length, gap = isNarrow(stage) ? 3 : 8;
      const y = (prob) => TOP + HIGH * (1 - prob / most);
      const bound = y(probs[LOGITS.indexOf(now.low)] ?? 0);
      const bars = LOGITS.flatMap((logit, token) => {
        const x = left + token * step, out = logit <= now.low, is = token === now.candidate;
        const isAbove = logit > LOGITS[now.candidate];
        const colour = out ? 'grey' : is ? 'orange' : isAbove ? 'blue' : 'grey';
        const mine = { 'data-thing': `token-${token} ${out ? 'out' : is ? 'leads' : isAbove ? 'above' : 'below'}` };
        const mark = out ? '✕' : is ? '★' : isAbove ? '↑' : '';
        return [
          svg('rect', { x, y: y(probs[token]), width: step - gap, height: TOP + HIGH - y(probs[token]),
            fill: out ? 'var(--bg)' : `var(--y-${colour}-soft)`, stroke: `var(--y-${colour})`, 'data-key': `token-${token}`, ...mine,
            'stroke-dasharray': out ? '3 2' : 'none', 'stroke-width': is ? 2.5 : 1 }),
          text(x + (step - gap) / 2, TOP + HIGH + 14, token, { anchor: 'middle', bold: is, ...mine }),
          mark ? text(x + (step - gap) / 2, TOP + HIGH + 30, mark, { anchor: 'middle', 'data-key': `mark-${mark}-${token}`, ...mine }) : null,
        ];
      });
      const racers = now.racing === LOGITS.length ? 'all 16 tokens' : `the ${now.racing} tokens that are left`;
      const verdict = now.open
        ? `not less than ${p.toFixed(2)}: rejected. It and all that are not more likely are out.`
        : now.mass === 0 ? 'nothing: it is drawn.' : `less than ${p.toFixed(2)}: it is drawn.`;
      const said = `Round ${Math.min(round, all.length)} of ${all.length}: of ${racers}, token ${now.candidate} arrives first. `
        + `Above it lies ${now.mass === 0 ? '' : `${now.mass.toFixed(2)} of the mass, `}${verdict}`;
      stage.append(picture(width, TOP + HIGH + 36, said,
        bars,
        now.low > -Infinity ? [
          svg('line', { x1: left - 4, x2: width - 2, y1: bound, y2: bound, stroke: 'var(--y-red)', 'stroke-dasharray': '6 3', 'data-key': 'low', 'data-thing': 'low' }),
          text(left - 6, bound + 4, 'low', { anchor: 'end', 'data-key': 'low-name', 'data-thing': 'low' }),
        ] : null),
      legend([{ fill: 'var(--y-orange-soft)', stroke: 'var(--y-orange)' }, '★ leads'], [{ fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' }, '↑ above it'],
        [{ fill: 'none', stroke: 'var(--y-grey)', 'stroke-dasharray': '3 2' }, '✕ out']));
      return said;
    },
  });
})();
