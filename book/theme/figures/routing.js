// Where a router sends the turns of many chats: what the replicas' caches then hold of each prompt, and how the load spreads.
'use strict';

const routing = (() => {
  const CHATS = 60, TURNS = 10, SYSTEM = 2000, NEW = 300; // tokens of the prompt that all share, and of a turn
  const LASTS = 24; // arrivals, until a request has its answer

  /** [chat, turn] in the order of arrival: each round has a turn of every chat, in an order of its own. */
  function arrivals() {
    const found = [];
    let seed = 0;
    for (let turn = 0; turn < TURNS; turn += 1) {
      const chats = Array.from({ length: CHATS }, (_, chat) => chat);
      for (let last = CHATS - 1; last > 0; last -= 1) {
        const other = Math.floor(around.random(seed += 1) * (last + 1));
        [chats[last], chats[other]] = [chats[other], chats[last]];
      }
      found.push(...chats.map((chat) => [chat, turn]));
    }
    return found;
  }

  /**
   * Sends all of them. way: "turn", dealt out in turn, or "score", the best of the cached share of the prompt less `weight` times
   * the load above the mean, relative to it. Caches hold everything. found: share of all prompts' tokens that were cached.
   */
  function run({ replicas, weight, way }) {
    const all = Array.from({ length: replicas }, () => ({ system: 0, chats: new Map(), ends: [], served: 0, most: 0 }));
    let found = 0, prompts = 0;
    arrivals().forEach(([chat, turn], now) => {
      const prompt = SYSTEM + NEW * (turn + 1);
      all.forEach((one) => { one.ends = one.ends.filter((end) => end > now); });
      const mean = all.reduce((sum, { ends }) => sum + ends.length, 0) / replicas;
      const cached = (one) => one.chats.get(chat) ?? one.system;
      const score = (one) => cached(one) / prompt - weight * (mean ? (one.ends.length - mean) / mean : 0);
      const chosen = way === 'turn' ? all[now % replicas] : all.reduce((best, one) => (score(one) > score(best) ? one : best));
      found += cached(chosen);
      prompts += prompt;
      chosen.system = SYSTEM;
      chosen.chats.set(chat, prompt);
      chosen.ends.push(now + LASTS);
      chosen.served += 1;
      chosen.most = Math.max(chosen.most, chosen.ends.length);
    });
    return { found: found / prompts, requests: CHATS * TURNS, even: LASTS / replicas, replicas: all.map(({ served, most }) => ({ served, most })) };
  }

  return { arrivals, run };
})();

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const LEFT = 22, HIGH = 16, ROW = 24, TOP = 56;
  const percent = (share) => `${Math.round(100 * share)}%`;

  yaie.controlled('routing', {
    plays: 'weight',
    controls: () => [
      { name: 'weight', label: 'weight of the load', min: 0, max: 2, step: 0.25, value: 0.5 },
      { name: 'replicas', label: 'replicas', min: 2, max: 8, step: 1, value: 8 },
      { name: 'way', label: 'router', options: [['score', 'by cached prefix and load'], ['turn', 'in turn']], value: 'score' },
    ],
    draw(stage, { weight, replicas, way }) {
      const given = { weight: Number(weight), replicas: Number(replicas), way };
      const found = routing.run(given), best = routing.run({ ...given, replicas: 1 }).found;
      const width = room(stage), narrow = isNarrow(stage), full = width - LEFT - 4;
      const busiest = found.replicas.reduce((most, one) => (one.served > most.served ? one : most));
      const many = Math.max(...found.replicas.map(({ most }) => most));
      const scale = full / found.requests, even = LEFT + scale * (found.requests / found.replicas.length);
      const said = `The caches have ${percent(found.found)} of the prompts' tokens, of ${percent(best)} that can be cached. The busiest replica gets `
        + `${busiest.served} of ${found.requests} requests; the most at once on one is ${many}, where ${found.even.toFixed(0)} would be even.`;
      stage.append(picture(width, TOP + found.replicas.length * ROW + 22, said,
        text(4, 12, narrow ? 'tokens of all prompts' : 'tokens of all prompts: found in a cache, and computed'),
        svg('rect', { x: 4, y: 18, width: (width - 8) * found.found, height: HIGH, fill: 'var(--y-green)', 'data-key': 'found', 'data-thing': 'found' }),
        svg('rect', { x: 4 + (width - 8) * found.found, y: 18, width: (width - 8) * (1 - found.found), height: HIGH, fill: 'var(--y-grey-soft)', stroke: 'var(--y-line)', 'data-key': 'computed', 'data-thing': 'computed' }),
        found.replicas.map(({ served, most }, index) => {
          const y = TOP + index * ROW, end = LEFT + scale * served, words = narrow ? `${served}, ${most} at once` : `${served} requests, at most ${most} at once`;
          const inside = end > width - 200;
          return [text(4, y + 12.5, index + 1, { 'data-key': `label-${index}` }),
            svg('rect', { x: LEFT, y, width: Math.max(1, scale * served), height: HIGH, fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)', 'data-key': `bar-${index}`, 'data-thing': 'requests' }),
            text(inside ? end - 6 : Math.max(end, even) + 6, y + 12.5, words, { anchor: inside ? 'end' : 'start', 'data-key': `words-${index}` })];
        }),
        svg('line', { x1: even, x2: even, y1: TOP - 6, y2: TOP + found.replicas.length * ROW, stroke: 'currentColor', 'stroke-dasharray': '3 4', 'data-key': 'even' }),
        text(even, TOP + found.replicas.length * ROW + 14, 'an even share', { anchor: even > width / 2 - 20 ? 'middle' : 'start', 'data-key': 'even-words' })),
      legend([{ fill: 'var(--y-green)' }, 'found'], [{ fill: 'var(--y-grey-soft)', stroke: 'var(--y-line)' }, 'computed'],
        [{ fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' }, 'requests of a replica']));
      return said;
    },
  });
})();
