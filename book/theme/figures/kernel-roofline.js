// Kernels by their operations for each byte, and the share that each reaches of what its own piece of roof allows.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const BOX = { left: 50, right: 12, top: 30, bottom: 42 };
  const X = [-0.3, 4]; // decades of operations for a byte
  const MOST = 1.06; // of the roof: a copy writes half of its bytes, so a kernel that reads more may pass it
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
      const x = (value) => BOX.left + ((Math.log10(value) - X[0]) / (X[1] - X[0])) * (right - BOX.left);
      const y = (share) => bottom - (share / MOST) * (bottom - BOX.top);
      const line = (x1, y1, x2, y2, attributes) => svg('line', { x1, y1, x2, y2, ...attributes });
      const grid = [
        [0, 1, 2, 3, 4].map((decade) => [line(x(10 ** decade), BOX.top, x(10 ** decade), bottom, { stroke: 'var(--y-line)' }),
          text(x(10 ** decade), bottom + 16, narrow && decade === 3 ? '' : (10 ** decade).toLocaleString('en'), { anchor: decade === 4 ? 'end' : 'middle' })]),
        [0, 25, 50, 75, 100].map((percent) => [line(BOX.left, y(percent / 100), right, y(percent / 100), { stroke: 'var(--y-line)' }),
          text(BOX.left - 5, y(percent / 100) + 4, `${percent}%`, { anchor: 'end' })])];
      const { bandwidth, compute, kernels } = data;
      const ridge = compute / bandwidth;
      const intensity = ({ flops, bytes }) => flops / bytes;
      const allowed = (one) => Math.min(compute, intensity(one) * bandwidth);
      const share = (one, way) => one.rates[way] / allowed(one);
      const roof = [
        line(BOX.left, y(1), right, y(1), { stroke: 'currentColor', 'stroke-width': 2.5, 'data-thing': 'roof' }),
        line(x(ridge), BOX.top - 14, x(ridge), bottom, { stroke: 'currentColor', 'stroke-dasharray': '5 4', 'data-thing': 'ridge' }),
        text(x(ridge) - 8, BOX.top - 8, narrow ? 'bandwidth' : 'bandwidth is the limit', { anchor: 'end' }),
        text(x(ridge) + 8, BOX.top - 8, narrow ? 'arithmetic' : 'arithmetic is the limit')];
      const marksOf = (one, index, big) => Object.keys(one.rates).map((way) =>
        mark(way, x(intensity(one)), y(share(one, way)), big, { 'data-thing': way, 'data-key': `${way}-${index}` }));
      const chosen = kernels[kernel], way = chosen.rates.triton ? 'triton' : 'cuda';
      const heads = ({ size }) => /\d+ heads on \d+$/.exec(size)?.[0];
      const same = (one, other) => one.name === other.name && heads(one) === heads(other);
      // Of the other kernels the largest size alone, or their marks would cover each other.
      const drawn = (one) => same(one, chosen) || kernels.every((other) => !same(one, other) || other.bytes <= one.bytes);
      const others = kernels.map((one, index) => (index === Number(kernel) || !drawn(one) ? [] : marksOf(one, index, false)));
      // The same kernel with the same heads at its other sizes: what becomes of it when there is less to do.
      const sizes = kernels.filter((one) => same(one, chosen)).map((one) => `${x(intensity(one)).toFixed(1)},${y(share(one, way)).toFixed(1)}`);
      const joined = svg('polyline', { points: sizes.join(' '), fill: 'none', stroke: WAYS[way][1], 'stroke-width': 1.5, 'data-key': 'sizes' });
      const bound = intensity(chosen) < ridge ? 'memory' : 'arithmetic';
      const each = Object.keys(chosen.rates).map((one) => `${WAYS[one][0]} ${Math.round(100 * share(chosen, one))}%`).join(', ');
      const said = `${chosen.name}, ${chosen.size}: ${digits(intensity(chosen))} operation${intensity(chosen) === 1 ? '' : 's'} for each byte, so ${bound} allows ${rate(allowed(chosen))}. Of that: ${each}.`;
      stage.append(picture(width, height, `Share of its own roof that each kernel reaches on an H100. ${said}`, grid, roof, joined, others, marksOf(chosen, Number(kernel), true),
        text(4, BOX.top - 8, narrow ? '' : 'share of the roof'), text(right, height - 6, 'operations for each byte', { anchor: 'end' })),
      legend(...Object.entries(WAYS).map(([one, [label, fill]]) => [{ fill, ...KEYS[one] }, label])));
      return said;
    },
  });
})();
