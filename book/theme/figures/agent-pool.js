// Agents take turns on one device: who decodes and who waits for a tool, and what happens when one more is admitted than fits.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const { show } = yaie.calculator;
  const { digits } = around;
  const DEVICE = { rate: 640e12, bandwidth: 4.274e12 };
  const PAUSES = [1, 2, 5.2, 10, 30, 60], MOST = 24, ROW = 10, HIGH = 7, LEFT = 4, TOP = 18, FOOT = 20, TICKS = 24;
  const LOOKS = {
    prefill: { fill: 'var(--y-orange)', stroke: 'var(--y-orange)' },
    decode: { fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' },
    wait: { fill: 'none', stroke: 'var(--y-grey)', 'stroke-dasharray': '3 3' },
  };

  /** The parts of a turn in order: a name, when it begins and how long it is. */
  const parts = ({ prefill, decode, turn }) => [['prefill', 0, prefill], ['decode', prefill, decode], ['wait', prefill + decode, turn - prefill - decode]];

  /** What a session does at a time. Turns are spread evenly: session i of n begins i/n of a turn later. */
  function doing(found, sessions, session, time) {
    const own = (((time - (session * found.turn) / sessions) % found.turn) + found.turn) % found.turn;
    return parts(found).findLast(([, from]) => own >= from)[0];
  }

  yaie.controlled('agent-pool', {
    plays: 'time',
    controls: () => [
      { name: 'time', label: 'time', min: 0, max: TICKS, step: 1, value: 11, format: (tick) => `${Math.round((100 * tick) / TICKS)}% of a turn` },
      { name: 'sessions', label: 'sessions', min: 1, max: MOST, step: 1, value: 19, format: (count) => count },
      { name: 'pause', label: 'a tool takes', min: 0, max: PAUSES.length - 1, step: 1, value: 2, format: (at) => `${PAUSES[at]} s` },
    ],
    tallest: () => [{ time: 0, sessions: MOST, pause: 2 }],
    draw(stage, { time, sessions, pause }, data) {
      const found = around.turns(data.models['llama-8b'], { ...data.agents, sessions, pause: PAUSES[pause] }, DEVICE);
      const { fit } = found;
      const width = room(stage), inner = width - 2 * LEFT, x = (seconds) => LEFT + (seconds / found.turn) * inner;
      const now = (time / TICKS) * found.turn, height = TOP + MOST * ROW + FOOT;
      const states = Array.from({ length: sessions }, (_, session) => doing(found, sessions, session, Math.min(now, found.turn * 0.9999)));
      const count = (state) => states.filter((one) => one === state).length;
      const number = (count) => count.toLocaleString('en');
      const short = sessions > fit ? `, ${sessions - fit} more than the pool holds: each turn computes ${number(found.computed)} of its `
        + `${number(data.agents.context)} tokens` : '';
      const said = `${sessions} session${sessions === 1 ? '' : 's'}${short}. A turn takes ${digits(found.turn)} s: `
        + `${show(found.prefill, 'seconds')} of prefill, ${digits(found.decode)} s until the answer is written, and the tool's `
        + `${PAUSES[pause]} s. At the line ${count('decode')} decode and ${count('wait')} wait${sessions > fit ? '' : `, which hold ${show(count('wait') * found.bytes, 'bytes')}`}. `
        + `The device finishes ${digits(sessions / found.turn, 2)} turns a second.`;
      const row = (session) => parts(found).flatMap(([name, from, long]) => {
        const begin = (from + (session * found.turn) / sessions) % found.turn, over = Math.max(0, begin + long - found.turn);
        return [[begin, long - over, 0], [0, over, 1]].filter(([, seconds]) => seconds > 0).map(([at, seconds, piece]) => svg('rect', {
          x: x(at), y: TOP + session * ROW, width: Math.max(1, x(seconds) - x(0) - 0.5), height: HIGH, 'stroke-width': 0.8, ...LOOKS[name],
          'data-key': `${name}-${session}-${piece}`, 'data-thing': name }));
      });
      stage.append(picture(width, height, said,
        text(LEFT, 11, isNarrow(stage) ? 'a row is a session' : 'each row is a session, from left to right one turn'),
        Array.from({ length: sessions }, (_, session) => row(session)),
        sessions > fit ? svg('line', { x1: LEFT, x2: LEFT + inner, y1: TOP + fit * ROW - 1.5, y2: TOP + fit * ROW - 1.5, stroke: 'var(--y-red)', 'stroke-width': 2 }) : null,
        svg('line', { x1: x(now), x2: x(now), y1: TOP - 3, y2: TOP + sessions * ROW, stroke: 'currentColor', 'stroke-width': 1.6, 'data-key': 'now' }),
        text(LEFT, height - 6, '0'), text(LEFT + inner, height - 6, `${digits(found.turn)} s`, { anchor: 'end' })),
      legend([LOOKS.prefill, 'prefill'], [LOOKS.decode, 'decodes, with the prefills of others between its steps'], [LOOKS.wait, 'a tool runs'],
        ...(sessions > fit ? [[{ fill: 'var(--y-red)', y: 5.5, height: 3 }, 'the pool holds no more than these']] : [])));
      return said;
    },
  });
})();
