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
  const [WIDTH, LEFT, TOP, HIGH, STEP] = [600, 34, 16, 150, 34];
  const SMALL = 'font-size: 11px';
  const text = (x, y, words, anchor = 'middle', bold = false) => svg('text', {
    x, y, 'text-anchor': anchor, style: SMALL + (bold ? '; font-weight: bold' : '') }, words);

  yaie.controlled('rejection', {
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
      const y = (prob) => TOP + HIGH * (1 - prob / most);
      const bound = y(probs[LOGITS.indexOf(now.low)] ?? 0);
      const bars = LOGITS.flatMap((logit, token) => {
        const x = LEFT + token * STEP, out = logit <= now.low, is = token === now.candidate;
        const isAbove = logit > LOGITS[now.candidate];
        const colour = out ? 'grey' : is ? 'orange' : isAbove ? 'blue' : 'grey';
        return [
          svg('rect', { x, y: y(probs[token]), width: STEP - 8, height: TOP + HIGH - y(probs[token]),
            fill: out ? 'none' : `var(--y-${colour}-soft)`, stroke: `var(--y-${colour})`,
            'stroke-dasharray': out ? '3 2' : 'none', 'stroke-width': is ? 2.5 : 1 }),
          text(x + (STEP - 8) / 2, TOP + HIGH + 14, token, 'middle', is),
          text(x + (STEP - 8) / 2, TOP + HIGH + 28, out ? 'out' : is ? 'leads' : isAbove ? 'above' : ''),
        ];
      });
      const racers = now.racing === LOGITS.length ? 'all 16 tokens' : `the ${now.racing} tokens that are left`;
      const verdict = now.open
        ? `not less than ${p.toFixed(2)}: rejected. It and all that are not more likely are out.`
        : now.mass === 0 ? 'nothing: it is drawn.' : `less than ${p.toFixed(2)}: it is drawn.`;
      const said = `Round ${Math.min(round, all.length)} of ${all.length}: of ${racers}, token ${now.candidate} arrives first. `
        + `Above it lies ${now.mass === 0 ? '' : `${now.mass.toFixed(2)} of the mass, `}${verdict}`;
      stage.dataset.wide = 460;
      stage.append(svg('svg', { viewBox: `0 0 ${WIDTH} ${TOP + HIGH + 36}`, role: 'img', 'aria-label': said },
        bars,
        now.low > -Infinity ? [
          svg('line', { x1: LEFT - 6, x2: WIDTH - 18, y1: bound, y2: bound, stroke: 'var(--y-red)', 'stroke-dasharray': '6 3' }),
          text(LEFT - 8, bound + 4, 'low', 'end'),
        ] : null));
      return said;
    },
  });
})();
