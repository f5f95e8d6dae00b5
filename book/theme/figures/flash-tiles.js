// Which tiles of keys a tile of queries visits, or which tiles of queries a tile of keys; and which need a mask.
'use strict';

const flashTiles = (() => {
  const down = (x, tile) => Math.floor(Math.max(x, 0) / tile) * tile;
  const up = (x, tile) => Math.ceil(Math.max(x, 0) / tile) * tile;

  /** The walk of the query tile that starts at `start`: { begin, fullBegin, fullEnd, end } in keys. */
  function keysOf(start, { tq, tk, rows, columns, window }) {
    const first = tk - tq + start, last = Math.min(first + rows, tk) - 1;
    const begin = window ? down(first - window + 1, columns) : 0;
    const fullEnd = Math.max(down(first + 1, columns), begin);
    const fullBegin = window ? Math.min(up(last - window + 1, columns), fullEnd) : begin;
    return { begin, fullBegin, fullEnd, end: Math.min(last + 1, tk) };
  }

  /** The walk of the key tile that starts at `start`, in queries. */
  function queriesOf(start, { tq, tk, rows, columns, window }) {
    const offset = tk - tq, last = Math.min(start + columns, tk) - 1;
    const begin = down(start - offset, rows);
    const end = window ? Math.min(last + window - offset, tq) : tq;
    const whole = window ? Math.min(Math.max(start + window - offset, 0), tq) : tq;
    const fullEnd = Math.max(down(whole, rows), begin);
    const fullBegin = Math.min(up(last - offset, rows), fullEnd);
    return { begin, fullBegin, fullEnd, end };
  }
  return { keysOf, queriesOf };
})();

(() => {
  const { svg } = yaie;
  const { room, picture, text, legend } = yaie.stage;
  const LEFT = 66, TOP = 22, MOST = 330;

  yaie.controlled('flash-tiles', {
    plays: 'number',
    controls: () => [
      { name: 'kind', label: 'program', options: [['queries', 'holds queries'], ['keys', 'holds keys']], value: 'queries' },
      { name: 'number', label: 'program number', min: 0, max: 7, step: 1, value: 5 },
      { name: 'rows', label: 'queries in a tile', options: [32, 64, 128].map((n) => [n, n]), value: 64 },
      { name: 'columns', label: 'keys in a tile', options: [32, 64, 128].map((n) => [n, n]), value: 64 },
      { name: 'tq', label: 'queries', min: 64, max: 512, step: 32, value: 512 },
      { name: 'window', label: 'window', options: [[0, 'none'], [40, '40'], [64, '64'], [200, '200']], value: 0 },
    ],
    draw(stage, values) {
      const tk = 512, tq = Number(values.tq), rows = Number(values.rows), columns = Number(values.columns);
      const shape = { tq, tk, rows, columns, window: Number(values.window) };
      const holdsQueries = values.kind === 'queries';
      const [mine, other] = holdsQueries ? [rows, columns] : [columns, rows];
      const programs = Math.ceil((holdsQueries ? tq : tk) / mine);
      const chosen = Math.min(Number(values.number), programs - 1);
      const drawn = [], SIDE = Math.min(MOST, room(stage) - LEFT - 14);
      const x = (key) => LEFT + key / tk * SIDE, y = (query) => TOP + query / tk * SIDE;
      let visited = 0;
      for (let program = 0; program < programs; program += 1) {
        const walk = holdsQueries ? flashTiles.keysOf(program * mine, shape) : flashTiles.queriesOf(program * mine, shape);
        for (let at = walk.begin; at < walk.end; at += other) {
          const whole = at >= walk.fullBegin && at < walk.fullEnd;
          const [left, top] = holdsQueries ? [x(at), y(program * mine)] : [x(program * mine), y(at)];
          const wide = holdsQueries ? x(Math.min(at + other, tk)) - left : x(Math.min((program + 1) * mine, tk)) - left;
          const high = holdsQueries ? y(Math.min((program + 1) * mine, tq)) - top : y(Math.min(at + other, tq)) - top;
          visited += 1;
          drawn.push(svg('rect', { x: left + 1, y: top + 1, width: Math.max(wide - 2, 1), height: Math.max(high - 2, 1),
            fill: `var(--y-${whole ? 'green' : 'orange'}-soft)`, stroke: program === chosen ? 'currentColor' : `var(--y-${whole ? 'green' : 'orange'})`,
            'stroke-width': program === chosen ? 2.5 : 1, 'data-key': `tile-${program}-${at / other}`,
            'data-thing': `program-${program} ${whole ? 'whole' : 'masked'}` }));
          if (!whole && wide > 12 && high > 12) drawn.push(text(left + wide / 2, top + high / 2 + 4, '\\', { anchor: 'middle', 'data-key': `mask-${program}-${at / other}` }));
        }
      }
      const walk = holdsQueries ? flashTiles.keysOf(chosen * mine, shape) : flashTiles.queriesOf(chosen * mine, shape);
      const all = Math.ceil(tq / rows) * Math.ceil(tk / columns);
      const what = holdsQueries ? ['queries', 'keys'] : ['keys', 'queries'];
      const last = Math.min((chosen + 1) * mine, holdsQueries ? tq : tk) - 1;
      const said = `Program ${chosen} holds ${what[0]} ${chosen * mine} to ${last} and visits ${what[1]} from ${walk.begin} to below `
        + `${walk.end}; those from ${walk.fullBegin} to below ${walk.fullEnd} need no mask. All programs: ${visited} of ${all} tiles.`;
      const lines = [svg('line', { x1: x(tk - tq), y1: y(0), x2: x(tk), y2: y(tq), stroke: 'var(--y-red)', 'stroke-width': 1.5, 'data-key': 'diagonal', 'data-thing': 'diagonal' })];
      if (shape.window) {
        const from = Math.max(0, shape.window - (tk - tq));
        lines.push(svg('line', { x1: x(Math.max(tk - tq - shape.window, 0)), y1: y(from), x2: x(tk - shape.window), y2: y(tq),
          stroke: 'var(--y-red)', 'stroke-width': 1.5, 'stroke-dasharray': '4 3', 'data-key': 'window', 'data-thing': 'window' }));
      }
      stage.append(picture(LEFT + SIDE + 14, y(tq) + 6, said,
        svg('rect', { x: x(0), y: y(0), width: SIDE, height: y(tq) - TOP, fill: 'none', stroke: 'var(--y-line)' }),
        drawn, lines,
        text(x(0), TOP - 8, '0'), text(x(tk), TOP - 8, `${tk} keys`, { anchor: 'end' }),
        text(LEFT - 6, y(0) + 10, 'query 0', { anchor: 'end' }), text(LEFT - 6, y(tq), `${tq}`, { anchor: 'end', 'data-key': 'last' })),
      legend([{ fill: 'var(--y-green-soft)', stroke: 'var(--y-green)' }, 'whole'], [{ fill: 'var(--y-orange-soft)', stroke: 'var(--y-orange)' }, '\\ needs a mask'],
        [{ fill: 'none', stroke: 'var(--y-line)' }, 'empty: not loaded']));
      return said;
    },
  });
})();
