// A step of small kernels: the host launches, the device runs. Who waits for whom?
'use strict';

const launches = (() => {
  const ON_THE_WAY = 3; // microseconds from the end of a launch to the begin of its kernel, at least
  const GAP = 1; // between two kernels of a graph

  /** Spans [begin, end] in microseconds on both sides. graph: all kernels by one launch. */
  function simulate({ kernels, host, device, graph }) {
    const onHost = [], onDevice = [];
    let free = 0, done = 0;
    for (let kernel = 0; kernel < kernels; kernel += 1) {
      if (!graph || kernel === 0) {
        onHost.push([free, free + host]);
        free += host;
      }
      const begin = Math.max(free + ON_THE_WAY, done + (kernel ? GAP : 0));
      done = begin + device;
      onDevice.push([begin, done]);
    }
    return { onHost, onDevice, end: done, busy: (kernels * device) / (done - onDevice[0][0]) };
  }

  return { simulate };
})();

(() => {
  const { svg } = yaie;
  const WIDTH = 600, LEFT = 58, ROW = 34, KERNELS = 10;
  const SMALL = 'font-size: 11px';
  const text = (x, y, words, anchor = 'start') => svg('text', { x, y, 'text-anchor': anchor, style: SMALL }, words);

  function row(name, spans, y, x, colour) {
    return [
      text(LEFT - 8, y + 21, name, 'end'),
      svg('rect', { x: LEFT, y, width: WIDTH - LEFT - 8, height: ROW - 4, fill: 'none', stroke: 'var(--y-line)' }),
      ...spans.flatMap(([begin, end], index) => {
        const wide = x(end) - x(begin);
        return [
          svg('rect', { x: x(begin), y, width: Math.max(wide, 0.8), height: ROW - 4, fill: `var(--y-${colour}-soft)`,
            stroke: `var(--y-${colour})` }),
          wide > 14 ? text((x(begin) + x(end)) / 2, y + 20, index + 1, 'middle') : null,
        ];
      }),
    ];
  }

  yaie.controlled('launches', {
    controls: () => [
      { name: 'host', label: 'a launch takes the host (µs)', min: 1, max: 20, step: 1, value: 6 },
      { name: 'device', label: 'a kernel takes the device (µs)', min: 1, max: 40, step: 1, value: 3 },
      { name: 'how', label: 'launched', options: [['one', 'one by one'], ['graph', 'as a CUDA graph']], value: 'one' },
    ],
    draw(stage, values) {
      const settings = { kernels: KERNELS, host: values.host, device: values.device };
      const graph = values.how === 'graph';
      const run = launches.simulate({ ...settings, graph });
      const scale = launches.simulate({ ...settings, graph: false }).end; // the same for both, to be compared
      const x = (time) => LEFT + time * (WIDTH - LEFT - 10) / scale;
      const who = graph ? 'The host launches once.'
        : values.host > values.device ? 'The device waits for the host between kernels: a faster kernel would change nothing.'
          : 'The host is ahead: launches hide behind kernels.';
      const said = `${KERNELS} kernels take ${Math.round(run.end)} µs; from the first to the last the device is busy `
        + `${Math.round(100 * run.busy)}% of the time. ${who}`;
      stage.dataset.wide = 460;
      stage.append(svg('svg', { viewBox: `0 0 ${WIDTH} 112`, role: 'img', 'aria-label': said },
        row('host', run.onHost, 6, x, 'orange'), row('device', run.onDevice, 6 + ROW + 8, x, 'blue'),
        text(LEFT, 104, '0 µs'), text(WIDTH - 10, 104, `${Math.round(scale)} µs`, 'end')));
      return said;
    },
  });
})();
