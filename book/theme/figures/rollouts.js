// A group of answers that begin together: how many still run, step by step, and what the last ones cost.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const { digits, power } = around;
  const MEAN = 2000, HEIGHT = 230, LEFT = 40, RIGHT = 8, TOP = 24, FOOT = 38;
  const whole = (value) => Math.round(value).toLocaleString('en');

  /** The steps as a path: `running` answers until the next one ends, and so on. From and to are counts that have ended. */
  function stairs(ends, from, to, { x, y }) {
    const begin = from ? ends[from - 1] : 0;
    const rest = ends.slice(from, to).map((end, at) => `H${x(end).toFixed(1)} V${y(ends.length - from - at - 1).toFixed(1)}`).join(' ');
    return `M${x(begin).toFixed(1)} ${y(0)} V${y(ends.length - from).toFixed(1)} ${rest} V${y(0)} Z`;
  }

  yaie.controlled('rollouts', {
    plays: 'left',
    controls: () => [
      { name: 'left', label: 'answers that are left', min: 0, max: 5, step: 1, value: 2, format: power },
      { name: 'answers', label: 'answers in the group', min: 6, max: 8, step: 1, value: 6, format: power },
      { name: 'shape', label: 'their lengths', options: [['geometric', 'geometric'], ['uniform', 'evenly from 0 to 4,000'], ['equal', 'all 2,000']], value: 'geometric' },
    ],
    draw(stage, { left, answers, shape }) {
      const [few, all] = [2 ** left, 2 ** answers], narrow = isNarrow(stage);
      const ends = around.ends(shape, all, MEAN), cut = all - few, steps = ends.at(-1);
      const { time, tokens, rows } = around.tail(ends, few);
      const width = room(stage);
      const x = (step) => LEFT + (step / steps) * (width - LEFT - RIGHT);
      const y = (running) => HEIGHT - FOOT - (running / all) * (HEIGHT - FOOT - TOP);
      const at = ends[cut - 1], said = shape === 'equal' ? `All ${all} answers end with step ${whole(steps)}: no row is ever empty.`
        : `When ${few} of ${all} answers still ${few === 1 ? 'runs' : 'run'}, ${digits(100 * time, 2)}% of the ${whole(steps)} steps are to come. They make `
          + `${digits(100 * tokens, 2)}% of the tokens: on average ${digits(rows, 2)} of ${all} rows ${digits(rows, 2) === '1' ? 'is' : 'are'} in use.`;
      stage.append(picture(width, HEIGHT, said,
        svg('path', { d: stairs(ends, 0, cut, { x, y }), fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)', 'data-key': 'most', 'data-thing': 'most' }),
        svg('path', { d: stairs(ends, cut, all, { x, y }), fill: 'var(--y-orange)', stroke: 'var(--y-orange)', 'data-key': 'last', 'data-thing': 'last' }),
        [0, all].map((running) => text(LEFT - 6, y(running) + 4, running, { anchor: 'end' })),
        text(4, 14, narrow ? 'answers that run' : 'answers that run, on average'),
        svg('line', { x1: LEFT, x2: width - RIGHT, y1: y(0), y2: y(0), stroke: 'currentColor' }),
        svg('line', { x1: x(at), x2: x(at), y1: TOP, y2: y(0), stroke: 'currentColor', 'stroke-dasharray': '4 3', 'data-key': 'cut' }),
        text(LEFT, HEIGHT - FOOT + 16, '0', { anchor: 'middle' }),
        text(Math.min(x(at), width - 150), HEIGHT - 6, `step ${whole(at)}`, { anchor: 'middle' }),
        text(width - RIGHT, HEIGHT - FOOT + 16, `${whole(steps)} steps`, { anchor: 'end' })),
      legend([{ fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' }, 'the others'], [{ fill: 'var(--y-orange)' }, `the last ${few}`]));
      return said;
    },
  });
})();
