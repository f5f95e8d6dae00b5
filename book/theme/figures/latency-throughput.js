// What a stream waits for a token, against the tokens that all streams get: a point for each size of batch.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, picture, text, legend } = yaie.stage;
  const HEIGHT = 300, LEFT = 46, FOOT = 42, TOP = 16;
  const WAYS = { measured: ['YAIE', 'var(--y-blue)', ''], limit: ['limit by bytes (dots)', 'currentColor', '2 4'] };
  const count = (value) => Math.round(value).toLocaleString('en');
  const step = (most) => [1, 2, 5, 10, 20, 50].map((unit) => unit * 10 ** Math.floor(Math.log10(most / 5))).find((unit) => most / unit <= 6);

  yaie.controlled('latency-throughput', {
    plays: 'batch',
    controls: (data) => [
      { name: 'batch', label: 'requests', options: data.measured['llama-8b'].map(([size], index) => [index, size]), value: 0 },
      { name: 'model', label: 'model', options: Object.entries(data.labels), value: 'llama-8b' },
    ],
    draw(stage, { batch, model }, data) {
      const width = room(stage);
      const lines = Object.keys(WAYS).map((way) => [way, data[way][model]]);
      const rate = ([size, ms]) => (1000 * size) / ms;
      const most = [Math.max(...lines.flatMap(([, points]) => points.map(rate))) * 1.05, Math.max(...lines.flatMap(([, points]) => points.map(([, ms]) => ms))) * 1.08];
      const x = (value) => LEFT + (value / most[0]) * (width - LEFT - 12);
      const y = (value) => HEIGHT - FOOT - (value / most[1]) * (HEIGHT - FOOT - TOP);
      const ticks = (end) => Array.from({ length: Math.floor(end / step(end)) + 1 }, (_, index) => index * step(end));
      const grid = [
        ticks(most[0]).map((value) => text(x(value), HEIGHT - FOOT + 16, count(value), { anchor: 'middle', 'data-key': `x-${value}` })),
        ticks(most[1]).map((value) => [text(LEFT - 6, y(value) + 4, value, { anchor: 'end', 'data-key': `y-${value}` }),
          svg('line', { x1: LEFT, x2: width - 12, y1: y(value), y2: y(value), stroke: 'var(--y-line)', 'data-key': `g-${value}` })])];
      const drawn = lines.map(([way, points]) => [
        svg('polyline', { points: points.map((point) => `${x(rate(point)).toFixed(1)},${y(point[1]).toFixed(1)}`).join(' '), fill: 'none',
          stroke: WAYS[way][1], 'stroke-width': 2, 'stroke-dasharray': WAYS[way][2] || null, 'data-thing': way }),
        points.map((point, index) => svg('circle', { cx: x(rate(point)), cy: y(point[1]), r: index === Number(batch) ? 6 : 3.5,
          fill: WAYS[way][1], 'data-thing': way, 'data-key': `${way}-${index}` }))]);
      stage.append(picture(width, HEIGHT, 'Milliseconds between the tokens of a stream, against tokens a second of all streams', grid, drawn,
        text(4, TOP - 4, 'ms between tokens'), text(width - 12, HEIGHT - 6, 'tokens a second, all streams', { anchor: 'end' })),
      legend(...Object.values(WAYS).map(([label, fill]) => [{ fill, y: 5.5, height: 3 }, label])));
      const [ours, least] = lines.map(([, points]) => points[batch]);
      return `${ours[0]} request${ours[0] === 1 ? '' : 's'}: a token every ${ours[1].toFixed(2)} ms and ${count(rate(ours))} tokens a second. `
        + `Its bytes alone need ${least[1].toFixed(2)} ms, ${Math.round((100 * least[1]) / ours[1])}% of that.`;
    },
  });
})();
