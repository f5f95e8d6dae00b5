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
  const LEFT = 34, TOP = 22, CELL = 15, PITCH = 24;
  const SMALL = 'font-size: 11px';

  function lane(x, y, number, inside, shade) {
    const box = svg('rect', { x: x + 0.5, y: y + 0.5, width: CELL - 1, height: CELL - 1,
      fill: inside ? shade : 'none', stroke: 'var(--y-line)' });
    if (inside) return [box];
    return [box, svg('path', { d: `M${x + 3} ${y + 3}l${CELL - 6} ${CELL - 6}m0 ${6 - CELL}l${6 - CELL} ${CELL - 6}`,
      stroke: 'var(--y-red)', fill: 'none' })];
  }

  yaie.controlled('tiles', {
    controls: () => [
      { name: 'rows', label: 'rows', min: 1, max: 6, step: 1, value: 3 },
      { name: 'columns', label: 'columns', min: 1, max: 40, step: 1, value: 20 },
      { name: 'block', label: 'BLOCK', value: '16',
        options: ['4', '8', '16', '32', '64'].map((size) => [size, size]) },
    ],
    draw(stage, values) {
      const rows = Number(values.rows), columns = Number(values.columns), block = Number(values.block);
      const { across, programs, lanes, idle } = tiles.count({ rows, columns, block });
      const width = LEFT + across * block * CELL + 8;
      const parts = [];
      for (let row = 0; row < rows; row += 1) {
        const y = TOP + row * PITCH;
        parts.push(svg('text', { x: LEFT - 6, y: y + 12, 'text-anchor': 'end', style: SMALL }, `row ${row}`));
        for (let tile = 0; tile < across; tile += 1) {
          const shade = tile % 2 === row % 2 ? 'var(--y-blue-soft)' : 'var(--y-green-soft)';
          const x = LEFT + tile * block * CELL;
          for (let i = 0; i < block; i += 1) {
            parts.push(...lane(x + i * CELL, y, i, tile * block + i < columns, shade));
          }
          parts.push(svg('rect', { x, y, width: block * CELL, height: CELL, fill: 'none',
            stroke: 'currentColor', 'stroke-width': 1.5 }));
          if (block * CELL > 40) {
            parts.push(svg('text', { x: x + 4, y: y + 11.5, style: SMALL }, `p${row * across + tile}`));
          }
        }
      }
      parts.push(svg('text', { x: LEFT, y: 14, style: SMALL }, `column 0 to ${across * block - 1}`));
      stage.dataset.wide = Math.min(width, 900);
      const label = `${rows} rows of ${columns} numbers in ${programs} programs of ${block} lanes`;
      stage.append(svg('svg', { role: 'img', 'aria-label': label,
        viewBox: `0 0 ${width} ${TOP + rows * PITCH + 4}` }, ...parts));
      const share = ((100 * idle) / lanes).toFixed(0);
      return `${programs} programs of ${block} lanes: ${lanes} lanes for ${rows * columns} numbers; `
        + (idle ? `${idle} of them (${share}%) are masked.` : 'none is masked.');
    },
  });
})();
