// A prompt arrives among streams that decode: on one device its chunks make steps longer, on two its blocks travel.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const { show } = yaie.calculator;
  const { digits, power, options } = around;
  const LEFT = 4, LABEL = 17, HIGH = 22, ROW = LABEL + HIGH + 9, BEFORE = 3, AFTER = 6, LEAST = 3;
  const times = (number, word) => `${digits(number)} ${word}${digits(number) === '1' ? '' : 's'}`;

  /** Decode steps from one time to another, one after the other; where they are too narrow to see, one hatched bar. */
  function steps(x, y, from, to, step, key) {
    const look = { y, height: HIGH, fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' };
    if (to - from < 1e-12) return [];
    if (x(step) - x(0) < LEAST) return [svg('rect', { ...look, x: x(from), width: x(to) - x(from), 'stroke-dasharray': '2 2', 'data-key': key })];
    return Array.from({ length: Math.round((to - from) / step) }, (_, at) => svg('rect', { ...look, x: x(from + at * step) + 0.5,
      width: x(step) - x(0) - 1, 'data-key': `${key}-${at}` }));
  }

  /** Steps with a chunk in front of the tokens of the streams; where they are too narrow to see, one bar of each. */
  function chunks(x, y, from, count, part, long) {
    const look = { y, height: HIGH }, wide = (time) => x(time) - x(0);
    const several = wide(long) < 2 * LEAST ? 1 : count, scale = count / several;
    return Array.from({ length: several }, (_, at) => [
      svg('rect', { ...look, x: x(from + at * long * scale), width: Math.max(1.5, wide(part * scale)), fill: 'var(--y-orange)', 'data-key': `chunk-${at}` }),
      svg('rect', { ...look, x: x(from + at * long * scale + part * scale) + 0.5, width: Math.max(1, wide((long - part) * scale) - 1),
        fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)', 'data-key': `chunk-step-${at}` })]);
  }

  yaie.controlled('apart', {
    plays: 'prompt',
    controls: (data) => [
      { name: 'prompt', label: 'tokens of the prompt', min: 7, max: 15, step: 1, value: 11, format: power },
      { name: 'answer', label: 'tokens of the answer', min: 4, max: 12, step: 1, value: 8, format: power },
      { name: 'batch', label: 'requests that decode together', min: 0, max: 8, step: 1, value: 6, format: power },
      { name: 'chunk', label: 'one device computes the prompt', options: [['512', 'in chunks of 512'], ['256', 'in chunks of 256'], ['2048', 'in chunks of 2,048'], ['0', 'whole']], value: '512' },
      { name: 'link', label: 'link', options: [['50', '400 Gbit/s'], ['12.5', '100 Gbit/s'], ['450', 'NVLink, 450 GB/s'], ['1.25', '10 Gbit/s']], value: '50' },
      { name: 'model', label: 'model', options: options(data.models), value: 'llama-8b' },
    ],
    draw(stage, { prompt, answer, batch, chunk, link, model }, data) {
      const device = { rate: 640e12, bandwidth: 4.274e12, link: link * 1e9 };
      const found = around.phases(data.models[model], { prompt: 2 ** prompt, answer: 2 ** answer, batch: 2 ** batch }, device);
      const { prefill, decode, step, moved } = found, start = BEFORE * step, there = start + prefill + moved;
      const { count, part, long } = around.chunked(data.models[model], found, { prompt: 2 ** prompt, batch: 2 ** batch, chunk: Number(chunk) }, device), done = start + count * long;
      const all = Math.ceil((Math.max(there, done) + AFTER * step) / step) * step;
      const width = room(stage), inner = width - 2 * LEFT, x = (time) => LEFT + (time / all) * inner;
      const block = (from, long, row, fill, key) => svg('rect', { x: x(from), width: Math.max(1.5, x(long) - x(0)), y: row * ROW + LABEL, height: HIGH,
        fill, 'data-key': key });
      const label = (row, long, short) => text(LEFT, row * ROW + 12, isNarrow(stage) ? short : long);
      const ratio = prefill / decode;
      const devices = ratio >= 1 ? `${times(ratio, 'prefill device')} for each that decodes` : `${times(1 / ratio, 'decode device')} for each that prefills`;
      const said = `On one device ${times(count, 'step')} ${count === 1 ? 'takes' : 'take'} ${show(long, 'seconds')} instead of ${show(step, 'seconds')}. Apart, `
        + `its blocks (${show(found.bytes, 'bytes')}) need ${show(moved, 'seconds')} on the link, and no stream waits. A balanced pool has ${devices}.`;
      const y = (row) => row * ROW + LABEL;
      stage.append(picture(width, 4 * ROW + 18, said,
        label(0, count === 1 ? 'One device: the streams wait until the prompt is computed' : 'One device: each step has a chunk of the prompt, and takes longer', 'One device'),
        steps(x, y(0), 0, start, step, 'before'), chunks(x, y(0), start, count, part, long),
        steps(x, y(0), done, done + Math.floor((all - done) / step + 1e-9) * step, step, 'after'),
        label(1, 'Apart, the device that prefills', 'Apart: prefill'), block(start, prefill, 1, 'var(--y-orange)', 'apart'),
        label(2, 'the link', 'link'), block(start + prefill, moved, 2, 'var(--y-grey)', 'moved'),
        label(3, 'the device that decodes: every stream gets its token on time', 'decode'), steps(x, y(3), 0, all, step, 'stream'),
        [0, all].map((time, end) => text(x(time), 4 * ROW + 12, time ? show(time, 'seconds') : '0', { anchor: end ? 'end' : 'start' }))),
      legend([{ fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' }, `a decode step, ${show(step, 'seconds')}`],
        [{ fill: 'var(--y-orange)' }, 'the prompt, or what a chunk adds'], [{ fill: 'var(--y-grey)' }, 'its blocks on their way']));
      return said;
    },
  });
})();
