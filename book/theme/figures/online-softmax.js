// Tiles of scores pass by; the registers m, l and o take them in, and are corrected when m rises.
'use strict';

(() => {
  const { html } = yaie;
  const STYLE = `
    figure.moving .stage .yo thead, figure.moving .stage .yo tbody tr { background: none; border: 0; }
    .yo { display: flex; flex-wrap: wrap; gap: 8px; font-size: 13px; }
    .yo [data-key^=register] { display: inline-block; }
    .yo-tile { flex: 1 1 200px; padding: 6px 8px; border: 1.5px solid var(--y-line); border-radius: 4px; }
    .yo-tile > b { display: flex; justify-content: space-between; }
    .yo-tile > b > span { font-weight: normal; font-size: 12px; }
    .yo-here { background: var(--y-blue-soft); border: 2.5px solid currentColor; padding: 5px 7px; }
    .yo-ahead { border-style: dashed; }
    .yo-registers { flex: 1 0 100%; padding: 4px 0; }
    figure.moving .stage .yo table { width: 100%; border-collapse: collapse; margin: 0; }
    .yo th, .yo td { border: 0; padding: 2px 4px; background: none; text-align: right;
      font-variant-numeric: tabular-nums; }
    .yo th[scope=row] { text-align: left; font-weight: normal; }
    .yo-tile td { font-family: var(--mono-font); }
    .yo-tile td.yo-best { font-weight: bold; text-decoration: underline; }
    .yo-registers thead th { font-size: 12px; vertical-align: bottom; }
    .yo-registers td { font-family: var(--mono-font); }
    figure.moving .stage .yo-registers tbody tr { border-top: 1px solid var(--y-line); }
    .yo-registers th[scope=row] { font-weight: bold; }
    .yo-registers td.yo-fresh { background: var(--y-green-soft); font-weight: bold; outline: 1.5px solid var(--y-green); }
    .yo-result { flex: 1 0 100%; box-sizing: border-box; margin: 0; padding: 6px 8px; border: 2px solid var(--y-green); border-radius: 4px; }`;
  document.head.append(html('style', {}, STYLE));

  const ORDER = ['now', 'rescaled', 'added', 'now']; // what was `now` is `before` in the next step, and goes there
  const digits = (value) => value.toFixed(3);
  const score = (value) => (value === null ? '−∞' : String(value));

  function tile(number, step, track) {
    const done = step.phase === 'end' ? track.tiles.length : step.tile ?? -1;
    const [state, note] = number === step.tile ? ['here', 'in fast memory']
      : number < done ? ['gone', 'seen, not kept'] : ['ahead', 'not yet seen'];
    const best = Math.max(...track.tiles[number]);
    const weights = state === 'here' ? step.weights : null;
    const row = (name, cells, marked = () => false) => html('tr', {}, html('th', { scope: 'row' }, name),
      cells.map((cell) => html('td', { class: marked(cell) ? 'yo-best' : null }, cell)));
    return html('div', { class: `yo-tile yo-${state}`, 'data-key': `tile-${number}`, 'data-thing': `tile-${number + 1}` },
      html('b', {}, `tile ${number + 1}`, html('span', {}, note)),
      html('table', {}, html('tbody', {},
        row('score', track.tiles[number].map(score), (cell) => state === 'here' && cell === score(best)),
        row('value', track.values[number]),
        row('weight', track.tiles[number].map((_, index) => (weights ? digits(weights[index]) : '·'))))));
  }

  /** The registers through the steps of a tile: before, corrected, what the tile adds, now. */
  function registers(step) {
    const { before, factor, rescaled, added, now } = step;
    const from = before ? score(before.m) : null;
    const times = factor === undefined ? 'corrected'
      : `× e^(${from} − ${now.m}) = ${digits(factor)}`;
    const head = ['register', 'before', times, '+ tile', 'now'];
    const fresh = { max: ['m'], rescale: ['l', 'o'], add: ['l', 'o'] }[step.phase] ?? [];
    const row = (name, meaning, show) => html('tr', { 'data-thing': `register-${name}` }, html('th', { scope: 'row' }, name, meaning),
      [before?.[name], name === 'm' ? undefined : rescaled?.[name], added?.[name], now[name]].map((value, column) =>
        html('td', { class: column === 3 && fresh.includes(name) ? 'yo-fresh' : null },
          value === undefined ? '' : html('span', { 'data-key': `register-${name}-${show(value)}-${ORDER[column]}` }, show(value)))));
    return html('div', { class: 'yo-registers' }, html('table', {},
      html('thead', {}, html('tr', {}, head.map((name, index) =>
        html('th', { scope: 'col', style: index === 0 ? 'text-align: left' : null }, name)))),
      html('tbody', {}, row('m', ', largest score', score), row('l', ', sum of weights', digits),
        row('o', ', sum of weight × value', digits))));
  }

  yaie.stepped('online-softmax', {
    draw(stage, step, track) {
      const result = step.phase === 'end' && html('p', { class: 'yo-result' },
        `o / l = ${digits(step.now.o)} / ${digits(step.now.l)} = ${digits(step.output)}`
        + ` · plain softmax over all scores: ${digits(step.plain)}`);
      stage.append(html('div', { class: 'yo' },
        track.tiles.map((_, number) => tile(number, step, track)), registers(step), result || null));
    },
  });
})();
