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
  const { room, picture, text } = yaie.stage;
  const LEFT = 58, ROW = 38, KERNELS = 10;

  function row(name, spans, y, x, right, colour) {
    return [
      text(LEFT - 8, y + 22, name, { anchor: 'end' }),
      svg('rect', { x: LEFT, y, width: right - LEFT, height: ROW - 4, fill: 'none', stroke: 'var(--y-line)' }),
      ...spans.flatMap(([begin, end], index) => {
        const wide = x(end) - x(begin), mine = { 'data-thing': `kernel-${index + 1}` };
        return [
          svg('rect', { x: x(begin), y, width: Math.max(wide, 0.8), height: ROW - 4, fill: `var(--y-${colour}-soft)`,
            stroke: `var(--y-${colour})`, 'data-key': `${name}-${index}`, ...mine }),
          wide > 15 ? text((x(begin) + x(end)) / 2, y + 22, index + 1, { anchor: 'middle', 'data-key': `${name}-number-${index}`, ...mine }) : null,
        ];
      }),
    ];
  }

  yaie.controlled('launches', {
    plays: 'device',
    controls: () => [
      { name: 'device', label: 'a kernel takes the device (µs)', min: 1, max: 40, step: 1, value: 3 },
      { name: 'host', label: 'a launch takes the host (µs)', min: 1, max: 20, step: 1, value: 6 },
      { name: 'how', label: 'launched', options: [['one', 'one by one'], ['graph', 'as a CUDA graph']], value: 'one' },
    ],
    draw(stage, values) {
      const settings = { kernels: KERNELS, host: values.host, device: values.device };
      const graph = values.how === 'graph';
      const run = launches.simulate({ ...settings, graph });
      const scale = launches.simulate({ ...settings, graph: false }).end; // the same for both, to be compared
      const width = room(stage), right = width - 4;
      const x = (time) => LEFT + time * (right - 2 - LEFT) / scale;
      const who = graph ? 'The host launches once.'
        : values.host > values.device ? 'The device waits for the host between kernels: a faster kernel would change nothing.'
          : 'The host is ahead: launches hide behind kernels.';
      const said = `${KERNELS} kernels take ${Math.round(run.end)} µs; from the first to the last the device is busy `
        + `${Math.round(100 * run.busy)}% of the time. ${who}`;
      stage.append(picture(width, 112, said,
        row('host', run.onHost, 6, x, right, 'orange'), row('device', run.onDevice, 6 + ROW + 6, x, right, 'blue'),
        text(LEFT, 106, '0 µs'), text(right, 106, `${Math.round(scale)} µs`, { anchor: 'end' })));
      return said;
    },
  });
})();
