// A step's tokens fall into the experts of a layer: which are read, and how many rows each gets.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const { show } = yaie.calculator;
  const { digits, power, options } = around;
  const ENOUGH = 160; // rows at which a product stops waiting for its weights: a cell is full with them
  const TOP = 8, BAR = 18;
  const count = (number, word) => `${digits(number)} ${word}${digits(number) === '1' ? '' : 's'}`;

  /** The grid: an expert is a cell, in the order of their ranks. */
  function layout(stage, experts) {
    const width = room(stage), columns = Math.min(experts, isNarrow(stage) ? 16 : 32);
    const size = Math.min(40, Math.floor((width - 8) / columns));
    return { width, columns, size, rows: Math.ceil(experts / columns), left: (width - columns * size) / 2,
      at(index) { return { x: this.left + (index % columns) * size, y: TOP + Math.floor(index / columns) * size }; } };
  }

  /** The outlines of all cells with rows, or of all without, as one element: hundreds cost each frame too much. */
  function outlines(grid, rows, haveRows, look) {
    const inner = grid.size - 3;
    const squares = rows.map((number, index) => {
      const { x, y } = grid.at(index);
      return !number === haveRows ? '' : `M${x + 1} ${y + 1}h${inner}v${inner}h${-inner}z`;
    });
    return svg('path', { d: squares.join(''), ...look });
  }

  function cells(grid, rows, last) {
    const bars = rows.flatMap((number, index) => {
      const { x, y } = grid.at(index), inner = grid.size - 3;
      const full = Math.max(1, Math.min(1, number / ENOUGH) * inner);
      return [
        number ? svg('rect', { x: x + 1, y: y + 1 + inner - full, width: inner, height: full, fill: 'var(--y-blue)',
          opacity: 0.75, 'data-key': `rows-${index}` }) : null,
        last.includes(index) ? svg('circle', { cx: x + 1 + inner / 2, cy: y + 1 + inner / 2, r: Math.min(5, inner / 4),
          fill: 'currentColor', 'data-key': `token-${last.indexOf(index)}`, 'data-thing': 'last' }) : null,
      ];
    });
    return [outlines(grid, rows, false, { fill: 'none', stroke: 'var(--y-line)', 'stroke-width': 0.6 }),
      outlines(grid, rows, true, { fill: 'var(--y-orange-soft)', stroke: 'var(--y-orange)' }), bars];
  }

  /** Lines between the experts of two ranks. */
  function borders(grid, experts, ranks) {
    const own = experts / ranks;
    if (own < 1) return [];
    return Array.from({ length: ranks - 1 }, (_, rank) => Math.round((rank + 1) * own)).map((index) => {
      const { x, y } = grid.at(index);
      const line = index % grid.columns ? { x1: x - 0.5, x2: x - 0.5, y1: y, y2: y + grid.size - 1 }
        : { x1: grid.left, x2: grid.left + grid.columns * grid.size, y1: y - 0.5, y2: y - 0.5 };
      return svg('line', { ...line, stroke: 'currentColor', 'stroke-width': 1.6 });
    });
  }

  /** What is read, of all that is held: the bar that fills. */
  function filled(grid, found, y) {
    const wide = grid.width - 8, of = (bytes) => (wide * bytes) / found.all;
    return [
      svg('rect', { x: 4, y, width: wide, height: BAR, fill: 'none', stroke: 'var(--y-line)' }),
      svg('rect', { x: 4, y, width: of(found.read), height: BAR, fill: 'var(--y-orange)', 'data-key': 'read' }),
      svg('line', { x1: 4 + of(found.work), x2: 4 + of(found.work), y1: y - 4, y2: y + BAR + 4, stroke: 'currentColor', 'stroke-width': 2 }),
      text(4, y + BAR + 16, `read ${show(found.read, 'bytes')} of ${show(found.all, 'bytes')} held`),
      grid.width < 480 ? null : text(4 + wide, y + BAR + 16, `line: ${show(found.work, 'bytes')}, one token's experts`, { anchor: 'end' }),
    ];
  }

  yaie.controlled('experts', {
    plays: 'tokens',
    controls: (data) => [
      { name: 'tokens', label: 'tokens in the step', min: 0, max: 12, step: 1, value: 4, format: power },
      { name: 'model', label: 'model', options: options(data.models), value: 'deepseek-v3' },
      { name: 'ranks', label: 'ranks', min: 0, max: 6, step: 1, value: 3, format: power },
    ],
    draw(stage, { tokens, model, ranks }, data) {
      const shape = data.models[model], [many, devices] = [2 ** tokens, 2 ** ranks];
      const found = around.experts(shape, { tokens: many, ranks: devices, width: 2 });
      const { rows, last } = around.draws(shape, many);
      const grid = layout(stage, shape.count), bottom = TOP + grid.rows * grid.size + 14;
      const read = rows.filter(Boolean).length;
      const few = found.each < ENOUGH ? 'too few, so each product waits for its weights' : 'enough, so arithmetic is the limit';
      const said = `${power(tokens)} token${tokens ? 's' : ''} reach${tokens ? '' : 'es'} ${read} of ${shape.count} experts here, `
        + `${digits(found.touched)} on average, with ${count(found.each, 'row')} each: ${few}. Of experts the step reads ${show(found.read, 'bytes')}, `
        + `${tokens ? `${digits(found.read / found.work)} times ` : ''}those of one token`
        + `${ranks ? `, and sends ${show(found.sent, 'bytes')} between ${devices} ranks` : ''}.`;
      stage.append(picture(grid.width, bottom + BAR + 24, said, cells(grid, rows, last), borders(grid, shape.count, devices),
        filled(grid, found, bottom)),
      legend([{ fill: 'none', stroke: 'var(--y-line)' }, 'an expert of one layer'],
        [{ fill: 'var(--y-orange-soft)', stroke: 'var(--y-orange)' }, 'read'], [{ fill: 'var(--y-blue)' }, `its rows, full at ${ENOUGH}`],
        [{ fill: 'currentColor', rx: 6, width: 11, x: 3.5 }, 'chosen by the last token']));
      return said;
    },
  });
})();
