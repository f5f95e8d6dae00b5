// A batch with many adapters, on one scale: the base is read once and a piece for each adapter; merged, a whole model each. Between
// both, the batch's rows in segments, and a square for each adapter that is read.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const { show } = yaie.calculator;
  const { digits, power, options } = around;
  const LEFT = 4, LABEL = 18, GAP = 3, HIGH = 22, MOST = 3; // merged models that are drawn
  const ROWS = 256, SQUARE = 8, PITCH = 11; // of the batch; of an adapter's two matrices
  const things = (number, word) => `${number} ${word}${number === '1' ? '' : 's'}`;

  /** The first merged models, each as wide as the base in the bar above. */
  function copies(number, { wide, high, y }) {
    return Array.from({ length: Math.min(number, MOST) }, (_, copy) => svg('rect', { x: LEFT, width: wide, height: high,
      y: y + copy * (high + GAP), fill: 'var(--y-grey-soft)', stroke: 'var(--y-line)', 'stroke-width': 0.8, 'data-key': `copy-${copy}` }));
  }

  /** The rows of the batch, sorted by adapter, and below them what is read for them, whatever number of rows a segment has. */
  function segments(number, { inner, y }) {
    const wide = inner / number, across = Math.floor(inner / PITCH);
    return { high: 12 + LABEL + 6 + Math.ceil(number / across) * PITCH, drawn: [
      svg('rect', { x: LEFT, y, width: inner, height: 12, fill: 'var(--y-blue-soft)', stroke: 'var(--y-line)', 'stroke-width': 0.8, 'data-key': 'rows' }),
      Array.from({ length: number - 1 }, (_, cut) => svg('line', { x1: LEFT + (cut + 1) * wide, x2: LEFT + (cut + 1) * wide, y1: y, y2: y + 12,
        stroke: 'currentColor', 'stroke-width': number > 64 ? 0.4 : 1, 'data-key': `cut-${cut}` })),
      text(LEFT, y + 12 + LABEL - 3, `read for them: ${things(`${number}`, 'pair')} of thin matrices`),
      Array.from({ length: number }, (_, at) => svg('rect', { x: LEFT + (at % across) * PITCH, y: y + 12 + LABEL + 4 + Math.floor(at / across) * PITCH,
        width: SQUARE, height: SQUARE, fill: 'var(--y-orange)', 'data-key': `pair-${at}` })),
    ] };
  }

  yaie.controlled('adapters', {
    plays: 'distinct',
    controls: (data) => [
      { name: 'distinct', label: 'different adapters in the batch', min: 0, max: 8, step: 1, value: 5, format: power },
      { name: 'rank', label: 'rank', min: 3, max: 7, step: 1, value: 4, format: power },
      { name: 'model', label: 'model', options: options(data.models), value: 'llama-8b' },
    ],
    draw(stage, { distinct, rank, model }, data) {
      const number = 2 ** distinct, narrow = isNarrow(stage);
      const found = around.adapter(data.models[model], { rank: 2 ** rank, distinct: number });
      const all = room(stage) - 2 * LEFT, wide = (all * found.base) / found.read, middle = LABEL + HIGH + 22;
      const batch = segments(number, { inner: all, y: middle + LABEL }), below = middle + LABEL + batch.high + 8;
      const shown = Math.min(number, MOST), high = HIGH / 2;
      const said = `An adapter is ${digits((100 * found.bytes) / found.base)}% of the model's matrices, ${show(found.bytes, 'bytes')}. A step with `
        + `${things(power(distinct), 'adapter')} reads ${digits((100 * (found.read - found.base)) / found.base)}% more than a step without; `
        + `${things(power(distinct), 'merged model')} would be ${show(found.copies, 'bytes')}.`;
      stage.append(picture(room(stage), below + LABEL + (MOST + 1) * (high + GAP) + 6, said,
        text(LEFT, 12, narrow ? `A step: ${show(found.read, 'bytes')}` : `A step reads ${show(found.read, 'bytes')}: the base, and ${things(power(distinct), 'adapter')}`),
        svg('rect', { x: LEFT, y: LABEL, width: wide, height: HIGH, fill: 'var(--y-blue)', 'data-key': 'base' }),
        svg('rect', { x: LEFT + wide, y: LABEL, width: Math.max(0.5, all - wide), height: HIGH, fill: 'var(--y-orange)', 'data-key': 'adapters' }),
        text(LEFT, middle + 12, number === 1 ? `Its ${ROWS} rows have one adapter`
          : `${narrow ? `${ROWS} rows` : `Its ${ROWS} rows, sorted by adapter`}: ${number} segments of ${ROWS / number}`),
        batch.drawn,
        text(LEFT, below + 12, narrow ? `Merged: ${show(found.copies, 'bytes')}`
          : `Merged into the base: ${things(power(distinct), 'whole model')}, ${show(found.copies, 'bytes')}`),
        copies(number, { wide, high, y: below + LABEL }),
        number > MOST ? text(LEFT, below + LABEL + MOST * (high + GAP) + 13, `… and ${(number - shown).toLocaleString('en')} more`) : null),
      legend([{ fill: 'var(--y-blue)' }, 'the base'], [{ fill: 'var(--y-orange)' }, 'adapters'], [{ fill: 'var(--y-blue-soft)', stroke: 'var(--y-line)' }, 'rows of the batch'],
        [{ fill: 'var(--y-grey-soft)', stroke: 'var(--y-line)' }, 'a merged model']));
      return said;
    },
  });
})();
