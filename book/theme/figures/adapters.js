// A batch with many adapters, on one scale: the base is read once and a sliver for each adapter; merged, a whole model each.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const { show } = yaie.calculator;
  const { digits, power, options } = around;
  const LEFT = 4, LABEL = 18, GAP = 3;
  const things = (number, word) => `${number} ${word}${number === '1' ? '' : 's'}`;

  /** Models in rows, each a rectangle of the same size. */
  function copies(number, { wide, high, columns, y }) {
    return Array.from({ length: number }, (_, copy) => svg('rect', { x: LEFT + (copy % columns) * (wide + GAP), width: wide, height: high,
      y: y + Math.floor(copy / columns) * (high + GAP), fill: 'var(--y-grey-soft)', stroke: 'var(--y-line)', 'stroke-width': 0.8,
      'data-key': `copy-${copy}` }));
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
      const width = room(stage), columns = 16, wide = (width - 2 * LEFT) / columns - GAP, high = narrow ? 9 : 12;
      // An adapter has the model's height and its share of the model's width.
      const sliver = (wide * found.bytes) / found.base, slivers = Math.min(width - 2 * LEFT - wide - GAP, sliver * number);
      const below = LABEL + high + 22;
      const said = `An adapter is ${digits((100 * found.bytes) / found.base)}% of the model, ${show(found.bytes, 'bytes')}. A step with `
        + `${things(power(distinct), 'adapter')} reads ${digits((100 * (found.read - found.base)) / found.base)}% more than a step without; `
        + `${things(power(distinct), 'merged model')} would be ${show(found.copies, 'bytes')}.`;
      stage.append(picture(width, below + LABEL + Math.ceil(number / columns) * (high + GAP), said,
        text(LEFT, 12, `A step reads ${show(found.read, 'bytes')}: the base, and ${things(power(distinct), 'adapter')}`),
        svg('rect', { x: LEFT, y: LABEL, width: wide, height: high, fill: 'var(--y-blue)', 'data-key': 'base' }),
        svg('rect', { x: LEFT + wide + GAP, y: LABEL, width: Math.max(0.5, slivers), height: high, fill: 'var(--y-orange)', 'data-key': 'slivers' }),
        text(LEFT, below + 12, narrow ? `Merged: ${show(found.copies, 'bytes')}`
          : `Merged into the base: ${things(power(distinct), 'whole model')}, ${show(found.copies, 'bytes')}`),
        copies(number, { wide, high, columns, y: below + LABEL })),
      legend([{ fill: 'var(--y-blue)' }, 'the base'], [{ fill: 'var(--y-orange)' }, 'all adapters of the step'],
        [{ fill: 'var(--y-grey-soft)', stroke: 'var(--y-line)' }, 'a merged model']));
      return said;
    },
  });
})();
