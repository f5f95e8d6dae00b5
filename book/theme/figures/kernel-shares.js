// Each kernel's rate as a share of what the machine can do: ours in Triton and in CUDA C++, and the best of others.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const GROUPS = {
    token: ['for each token', ['RMSNorm', 'add and RMSNorm', 'SiLU-mul', 'RoPE', 'RoPE and store']],
    attention: ['attention', ['paged decode', 'paged prefill', 'causal attention, forward', 'causal attention, backward']],
    memory: ['memory', ['store K and V', 'gather blocks', 'copy blocks', 'longest common prefix']],
  };
  const MARKS = { triton: ['Triton', 'var(--y-blue)'], cuda: ['CUDA C++', 'var(--y-orange)'], other: ['best of others', 'currentColor'] };
  const KEYS = { triton: { x: 4, y: 2, width: 10, height: 10, rx: 5 }, cuda: { x: 4.5, y: 2.5, width: 9, height: 9 }, other: { x: 7.5, y: 0, width: 3, height: 14 } };
  const MOST = 1.1, TOP = 24;

  /** Short enough for a line: the heads that share keys are in the table. */
  const label = (name, size) => `${name.replace('causal attention, ', 'attention ')}, ${size.replace(/, \d+ heads on \d+$/, '')}`;

  /** A mark that is told by its shape, too: circle, square, line. */
  function mark(way, x, y, attributes = {}) {
    const look = { fill: MARKS[way][1], 'data-thing': way, ...attributes };
    if (way === 'triton') return svg('circle', { cx: x, cy: y, r: 5, ...look });
    if (way === 'cuda') return svg('rect', { x: x - 4.5, y: y - 4.5, width: 9, height: 9, ...look });
    return svg('rect', { x: x - 1.5, y: y - 8, width: 3, height: 16, ...look });
  }

  /** The kernels of a group, each with its shares of the ceiling of its unit. */
  function kernels(data, group) {
    return Object.entries(data.units).flatMap(([unit, { ceiling, kernels: all }]) => all
      .filter(({ name }) => GROUPS[group][1].includes(name))
      .map((kernel) => ({ ...kernel, unit, shares: Object.keys(MARKS).filter((way) => way in kernel).map((way) => [way, kernel[way] / ceiling]) })));
  }

  yaie.controlled('kernel-shares', {
    controls: () => [{ name: 'group', label: 'kernels', options: Object.entries(GROUPS).map(([key, [label]]) => [key, label]), value: 'token' }],
    draw(stage, { group }, data) {
      const shown = kernels(data, group);
      const narrow = isNarrow(stage), width = room(stage);
      const left = narrow ? 8 : 316, row = narrow ? 42 : 26, right = width - 10;
      const x = (share) => left + (share / MOST) * (right - left);
      const foot = TOP + shown.length * row + 4;
      const grid = [0, 0.25, 0.5, 0.75, 1].map((share) => [
        svg('line', { x1: x(share), x2: x(share), y1: TOP - 4, y2: foot, stroke: share === 1 ? 'currentColor' : 'var(--y-line)', 'data-key': `grid-${share}` }),
        text(x(share), TOP - 9, share === 1 ? 'ceiling' : `${100 * share}%`, { anchor: share ? 'middle' : 'start', 'data-key': `at-${share}` })]);
      const rows = shown.map(({ name, size, shares }, index) => {
        const y = TOP + index * row + (narrow ? 28 : 14);
        return svg('g', { 'data-key': `${name} ${size}`, 'data-thing': `row-${index}` },
          text(narrow ? left : left - 10, narrow ? y - 14 : y + 4, label(name, size), { anchor: narrow ? 'start' : 'end' }),
          svg('line', { x1: left, x2: right, y1: y, y2: y, stroke: 'var(--y-line)' }),
          shares.map(([way, share]) => mark(way, x(share), y)));
      });
      const best = Math.max(...shown.flatMap(({ shares }) => shares.map(([, share]) => share)));
      const ahead = shown.filter(({ shares }) => {
        const other = shares.find(([way]) => way === 'other');
        return other && shares.every(([way, share]) => way === 'other' || share < other[1]);
      });
      const said = `Nearest to its ceiling here: ${Math.round(100 * best)}%. `
        + (ahead.length ? `Another library is ahead of both of ours in ${ahead.length} of ${shown.length}.` : 'No other library is ahead of both of ours.');
      stage.append(picture(width, foot + 4, said, grid, rows),
        legend(...Object.entries(MARKS).map(([way, [label, fill]]) => [{ fill, ...KEYS[way] }, label])));
      return said;
    },
  });
})();
