// A batch with many adapters, on one scale: the base is read once and a piece for each adapter; merged, a whole model each.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const { show } = yaie.calculator;
  const { digits, power, options } = around;
  const LEFT = 4, LABEL = 18, GAP = 3, HIGH = 22, MOST = 3; // merged models that are drawn
  const things = (number, word) => `${number} ${word}${number === '1' ? '' : 's'}`;

  /** The first merged models, each as wide as the base in the bar above. */
  function copies(number, { wide, high, y }) {
    return Array.from({ length: Math.min(number, MOST) }, (_, copy) => svg('rect', { x: LEFT, width: wide, height: high,
      y: y + copy * (high + GAP), fill: 'var(--y-grey-soft)', stroke: 'var(--y-line)', 'stroke-width': 0.8, 'data-key': `copy-${copy}` }));
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
      const all = room(stage) - 2 * LEFT, wide = (all * found.base) / found.read, below = LABEL + HIGH + 22;
      const shown = Math.min(number, MOST), high = HIGH / 2;
      const said = `An adapter is ${digits((100 * found.bytes) / found.base)}% of the model's matrices, ${show(found.bytes, 'bytes')}. A step with `
        + `${things(power(distinct), 'adapter')} reads ${digits((100 * (found.read - found.base)) / found.base)}% more than a step without; `
        + `${things(power(distinct), 'merged model')} would be ${show(found.copies, 'bytes')}.`;
      stage.append(picture(room(stage), below + LABEL + (MOST + 1) * (high + GAP) + 6, said,
        text(LEFT, 12, narrow ? `A step: ${show(found.read, 'bytes')}` : `A step reads ${show(found.read, 'bytes')}: the base, and ${things(power(distinct), 'adapter')}`),
        svg('rect', { x: LEFT, y: LABEL, width: wide, height: HIGH, fill: 'var(--y-blue)', 'data-key': 'base' }),
        svg('rect', { x: LEFT + wide, y: LABEL, width: Math.max(0.5, all - wide), height: HIGH, fill: 'var(--y-orange)', 'data-key': 'adapters' }),
        text(LEFT, below + 12, narrow ? `Merged: ${show(found.copies, 'bytes')}`
          : `Merged into the base: ${things(power(distinct), 'whole model')}, ${show(found.copies, 'bytes')}`),
        copies(number, { wide, high, y: below + LABEL }),
        number > MOST ? text(LEFT, below + LABEL + MOST * (high + GAP) + 13, `… and ${(number - shown).toLocaleString('en')} more`) : null),
      legend([{ fill: 'var(--y-blue)' }, 'the base'], [{ fill: 'var(--y-orange)' }, 'all adapters of the step'],
        [{ fill: 'var(--y-grey-soft)', stroke: 'var(--y-line)' }, 'a merged model']));
      return said;
    },
  });
})();
