// How a launch cuts a matrix into programs of one row and BLOCK columns, and which lanes the mask turns off.
'use strict';

const tiles = (() => {
  /** Programs a row, lanes in all, and those that have no number. */
  function count({ rows, columns, block }) {
    const across = Math.ceil(columns / block);
    const lanes = rows * across * block;
    return { across, programs: rows * across, lanes, idle: lanes - rows * columns };
  }
  return { count };
})();

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const TOP = 20;

  function lane(x, y, cell, inside, shade) {
    const box = svg('rect', { x: x + 0.5, y: y + 0.5, width: cell - 1, height: 15,
      fill: inside ? shade : 'none', stroke: 'var(--y-line)' });
    if (inside) return [box];
    return [box, svg('path', { d: `M${x + 1.5} ${y + 3}L${x + cell - 1.5} ${y + 13}M${x + cell - 1.5} ${y + 3}L${x + 1.5} ${y + 13}`,
      stroke: 'var(--y-red)', fill: 'none' })];
  }

  yaie.controlled('tiles', {
    plays: 'columns',
    controls: () => [
      { name: 'rows', label: 'rows', min: 1, max: 6, step: 1, value: 3 },
      { name: 'columns', label: 'columns', min: 1, max: 40, step: 1, value: 20 },
      { name: 'block', label: 'BLOCK', value: '16',
        options: ['4', '8', '16', '32', '64'].map((size) => [size, size]) },
    ],
    draw(stage, values) {
      const rows = Number(values.rows), columns = Number(values.columns), block = Number(values.block);
      const { across, programs, lanes, idle } = tiles.count({ rows, columns, block });
      const left = isNarrow(stage) ? 16 : 46, width = room(stage);
      const cell = Math.min(15, (width - left - 2) / (across * block));
      const pitch = 38;
      const parts = [];
      for (let row = 0; row < rows; row += 1) {
        const y = TOP + row * pitch;
        parts.push(text(left - 6, y + 13, isNarrow(stage) ? row : `row ${row}`, { anchor: 'end' }));
        for (let tile = 0; tile < across; tile += 1) {
          const shade = tile % 2 === row % 2 ? 'var(--y-blue-soft)' : 'var(--y-green-soft)';
          const x = left + tile * block * cell, number = row * across + tile;
          const lanesOf = Array.from({ length: block }, (_, i) => lane(x + i * cell, y, cell, tile * block + i < columns, shade));
          parts.push(svg('g', { 'data-key': `tile-${block}-${row}-${tile}`, 'data-thing': `program-${number}` }, lanesOf.flat(),
            svg('rect', { x, y, width: block * cell, height: 16, fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5 }),
            block * cell > 26 ? text(x + 2, y + 29, `p${number}`) : null));
        }
      }
      parts.push(text(left, 12, `column 0 to ${across * block - 1}`));
      const label = `${rows} rows of ${columns} numbers in ${programs} programs of ${block} lanes`;
      stage.append(picture(width, TOP + rows * pitch, label, ...parts),
        legend([{ fill: 'var(--y-blue-soft)', stroke: 'var(--y-line)' }, 'a lane with a number'],
          [{ fill: 'none', stroke: 'var(--y-red)' }, 'crossed: masked']));
      const share = ((100 * idle) / lanes).toFixed(0);
      return `${programs} programs of ${block} lanes: ${lanes} lanes for ${rows * columns} numbers; `
        + (idle ? `${idle} of them (${share}%) are masked.` : 'none is masked.');
    },
  });
})();
