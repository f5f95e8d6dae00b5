// A text, the automaton's states on the bytes of its last token, and which tokens may come next.
'use strict';

(() => {
  const { svg, html } = yaie;
  const { room, picture, text } = yaie.stage;
  const STYLE = `
    .ta-row { display: flex; flex-wrap: wrap; gap: 4px; margin: 0 0 0.4em; align-items: center; }
    .ta-row span.ta-name { min-width: 6.5em; font-size: 0.85em; }
    .ta-token { border: 1px dashed var(--y-line); border-radius: 4px; padding: 0 5px;
      font: 13px monospace; white-space: pre; }
    .ta-token.on { border: 2px solid var(--y-green); background: var(--y-green-soft); }
    .ta-token.done { border: 1px solid var(--y-blue); background: var(--y-blue-soft); }
    .ta-token.forced { border: 2px solid var(--y-orange); background: var(--y-orange-soft); }`;
  document.head.append(html('style', {}, STYLE));

  const RADIUS = 13, TOP = 22, FAN = 24, LEFT = 18;
  const ABOUT = { on: 'allowed', done: 'output', forced: 'forced' };
  const token = (words, kind, key, mark = '') => html('span', { class: `ta-token ${kind}`, 'data-key': key,
    'data-thing': words === 'nothing' ? null : `token-${words.replaceAll(' ', '␣')} ${ABOUT[kind] ?? ''}` }, mark && `${mark} `, words);
  const row = (name, ...cells) => html('div', { class: 'ta-row' }, html('span', { class: 'ta-name' }, name), ...cells);

  function circle(x, y, { number, final }, here) {
    return [
      svg('circle', { cx: x, cy: y, r: RADIUS, fill: here ? 'var(--y-blue-soft)' : 'none', stroke: 'var(--y-blue)',
        'stroke-width': here ? 2.5 : 1, 'data-key': `state-${number}`, 'data-thing': `state-${number}` }),
      final ? svg('circle', { cx: x, cy: y, r: RADIUS - 4, fill: 'none', stroke: 'var(--y-blue)' }) : null,
      text(x, y + 4, number, { bold: here, anchor: 'middle', 'data-key': `number-${number}`, 'data-thing': `state-${number}` }),
    ];
  }

  function arrow(x1, y1, x2, y2, words) {
    return [
      svg('path', { d: `M${x1} ${y1}L${x2} ${y2}m-6 -3l6 3l-6 3`, fill: 'none', stroke: 'currentColor' }),
      text((x1 + x2) / 2, (y1 + y2) / 2 - 5, words, { anchor: 'middle' }),
    ];
  }

  /** The states of the last token, one behind the other, and the bytes that lead on from the last. */
  function automaton(stage, step) {
    const width = Math.min(560, room(stage)), stride = Math.min(64, (width - LEFT - 122) / 4);
    const middle = TOP + Math.max(0, step.next.length - 1) * FAN / 2;
    const at = (index) => LEFT + index * stride;
    const last = at(step.path.length - 1);
    const path = step.path.flatMap((state, index) => [
      ...circle(at(index), middle, state, index === step.path.length - 1),
      ...(index ? arrow(at(index - 1) + RADIUS, middle, at(index) - RADIUS, middle, state.byte) : []),
    ]);
    const fan = step.next.flatMap(({ bytes, state }, index) => {
      const y = TOP + index * FAN;
      return [
        svg('path', { d: `M${last + RADIUS} ${middle}L${last + 32} ${y}h12`, fill: 'none', stroke: 'currentColor', 'stroke-dasharray': '3 2' }),
        text(last + 50, y + 4, `${bytes} → ${state}`, { 'data-key': `next-${state}`, 'data-thing': `state-${state}` }),
      ];
    });
    return picture(width, Math.max(2 * middle, middle + RADIUS + 2), step.picture, path, fan);
  }

  yaie.stepped('token-automaton', {
    draw(stage, step, data) {
      stage.append(
        row('text so far', ...(step.output.length ? step.output.map((words, index) => token(words, 'done', `out-${index}`)) : [token('nothing', '', 'no-text')])),
        automaton(stage, step),
        row('may come', ...data.vocabulary.map((words, index) => token(words, step.allowed[index] ? 'on' : '', `may-${index}`, step.allowed[index] ? '✓' : ''))),
        row('mask', html('code', {}, step.mask)),
        row('forced', ...(step.forced.length ? // What is forced is text in the next step: it goes there.
          step.forced.map((words, index) => token(words, 'forced', `out-${step.output.length + index}`)) : [token('nothing', '', 'not-forced')])),
      );
    },
  });
})();
