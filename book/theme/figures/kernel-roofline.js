// Kernels on log-log axes: operations for each byte, and operations a second, under the roof of the same run.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const BOX = { left: 58, right: 12, top: 14, bottom: 42 };
  const X = [-0.4, 4], Y = [11.4, 15]; // decades of operations for a byte, and of operations a second
  const WAYS = { triton: ['Triton', 'var(--y-blue)'], cuda: ['CUDA C++', 'var(--y-orange)'], other: ['best of others', 'currentColor'] };
  const KEYS = { triton: { x: 4, y: 2, width: 10, height: 10, rx: 5 }, cuda: { x: 4.5, y: 2.5, width: 9, height: 9 }, other: { x: 2, y: 5.5, width: 14, height: 3 } };
  const UNITS = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G']];
  const digits = (value) => Number(value.toPrecision(value < 10 ? 2 : 3)).toLocaleString('en');
  const rate = (value) => UNITS.filter(([least]) => value >= least).map(([least, letter]) => `${digits(value / least)} ${letter}FLOP/s`)[0];

  /** A mark that is told by its shape, too: circle, square, line. big: of the kernel that is chosen, hollow to show what is below. */
  function mark(way, x, y, big, attributes) {
    const r = big ? 8 : 4;
    const look = big && way !== 'other' ? { fill: 'none', stroke: WAYS[way][1], 'stroke-width': 3, ...attributes }
      : { fill: WAYS[way][1], 'fill-opacity': big ? 1 : 0.45, ...attributes };
    if (way === 'triton') return svg('circle', { cx: x, cy: y, r, ...look });
    if (way === 'cuda') return svg('rect', { x: x - r, y: y - r, width: 2 * r, height: 2 * r, ...look });
    return svg('rect', { x: x - r - 2, y: y - 1.5, width: 2 * r + 4, height: 3, ...look });
  }

  const short = (size) => size.replace(/, \d+ heads on \d+$/, '').replace(/, 32 \+ 8 heads$/, '');

  yaie.controlled('kernel-roofline', {
    plays: 'kernel',
    controls: (data) => [{ name: 'kernel', label: 'kernel', value: 0,
      options: data.kernels.map(({ name, size }, index) => [index, `${name.replace('causal attention', 'attention')}, ${short(size)}`]) }],
    draw(stage, { kernel }, data) {
      const width = room(stage), narrow = isNarrow(stage), height = narrow ? 300 : 360;
      const [right, bottom] = [width - BOX.right, height - BOX.bottom];
      const at = ([low, high], from, to) => (value) => from + ((Math.log10(value) - low) / (high - low)) * (to - from);
      const x = at(X, BOX.left, right), y = at(Y, bottom, BOX.top);
      const line = (x1, y1, x2, y2, attributes) => svg('line', { x1, y1, x2, y2, ...attributes });
      const grid = [
        [0, 1, 2, 3, 4].map((decade) => [line(x(10 ** decade), BOX.top, x(10 ** decade), bottom, { stroke: 'var(--y-line)' }),
          text(x(10 ** decade), bottom + 16, narrow && decade === 3 ? '' : (10 ** decade).toLocaleString('en'), { anchor: decade === 4 ? 'end' : 'middle' })]),
        [12, 13, 14, 15].map((decade) => [line(BOX.left, y(10 ** decade), right, y(10 ** decade), { stroke: 'var(--y-line)' }),
          text(BOX.left - 5, y(10 ** decade) + 4, digits(10 ** decade / 1e12) + ' T', { anchor: 'end' })])];
      const { bandwidth, compute, float32 } = data;
      const ridge = compute / bandwidth, foot = 10 ** X[0];
      const allowed = (intensity) => Math.min(compute, intensity * bandwidth);
      const roof = [
        svg('path', { d: `M ${x(foot)} ${y(foot * bandwidth)} L ${x(ridge)} ${y(compute)} L ${right} ${y(compute)}`, fill: 'none',
          stroke: 'currentColor', 'stroke-width': 2.5, 'data-thing': 'roof' }),
        line(x(float32 / bandwidth), y(float32), right, y(float32), { stroke: 'currentColor', 'stroke-dasharray': '5 4', 'data-thing': 'float32' }),
        text(x(ridge) - 8, y(compute) + 4, rate(compute), { anchor: 'end' }),
        text(right, y(float32) - 6, narrow ? `float32: ${rate(float32)}` : `float32, no tensor cores: ${rate(float32)}`, { anchor: 'end' })];
      const marksOf = (index, big) => Object.entries(data.kernels[index].rates).map(([way, value]) =>
        mark(way, x(data.kernels[index].flops / data.kernels[index].bytes), y(value), big, { 'data-thing': way, 'data-key': `${way}-${index}` }));
      const others = data.kernels.map((_, index) => (index === Number(kernel) ? [] : marksOf(index, false)));

      const chosen = data.kernels[kernel];
      const intensity = chosen.flops / chosen.bytes, most = allowed(intensity);
      const plumb = line(x(intensity), y(most), x(intensity), bottom, { stroke: 'currentColor', 'stroke-dasharray': '2 4', 'data-key': 'plumb' });
      const bound = intensity < ridge ? 'memory' : 'arithmetic';
      const each = Object.entries(chosen.rates).map(([way, value]) => `${WAYS[way][0]} ${Math.round((100 * value) / most)}%`).join(', ');
      const said = `${chosen.name}, ${chosen.size}: ${digits(intensity)} operation${intensity === 1 ? '' : 's'} for each byte, so ${bound} allows ${rate(most)}. Of that: ${each}.`;
      stage.append(picture(width, height, `Roofline of an H100 with the kernels on it. ${said}`, grid, roof, plumb, others, marksOf(Number(kernel), true),
        text(BOX.left + 6, BOX.top + 12, 'FLOP/s'), text(right, height - 6, 'operations for each byte', { anchor: 'end' })),
      legend(...Object.entries(WAYS).map(([way, [label, fill]]) => [{ fill, ...KEYS[way] }, label])));
      return said;
    },
  });
})();
