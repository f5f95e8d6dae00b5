// A prefix comes back: computed again, or fetched from three places, all at once, so that one sees which is there first.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const { show } = yaie.calculator;
  const { digits, power, options } = around;
  const FROM = [[64e9, 'Host memory', 'PCIe 5'], [50e9, 'Another machine', '400 Gbit/s'], [7e9, 'Disk', 'NVMe']];
  const LEFT = 4, ROW = 52, HIGH = 20, TICKS = 24;

  /** The four ways, with the seconds that each takes. */
  function ways({ tokens, model, rate, share }, data) {
    const own = around.again(data.models[model], 2 ** tokens, Number(rate) * 1e12);
    return [{ name: 'Compute it again', how: show(own.flops, 'flops'), seconds: own.seconds },
      ...FROM.map(([promised, name, path]) => [promised * Number(share), name, path]).map(([speed, name, path]) => (
        { name, how: `${show(own.bytes, 'bytes')} at ${digits(speed / 1e9)} GB/s (${path})`, seconds: own.bytes / speed }))];
  }

  /** A strip of blocks, of which a share has come. */
  function strip({ name, how, seconds }, at, now, { inner, narrow, best }) {
    const y = at * ROW, share = Math.min(1, now / seconds), blocks = narrow ? 32 : 64, pitch = inner / blocks;
    const there = Math.floor(blocks * share + 1e-9), done = share === 1;
    const colour = done && best ? 'var(--y-green)' : at ? 'var(--y-blue)' : 'var(--y-orange)';
    return [
      text(LEFT, y + 12, narrow ? name : `${name}: ${how}`),
      text(LEFT + inner, y + 12, done ? `there after ${show(seconds, 'seconds')}` : `${Math.floor(100 * share)}%`, { anchor: 'end', bold: done }),
      Array.from({ length: blocks }, (_, block) => svg('rect', { x: LEFT + block * pitch + 0.5, y: y + 18, width: pitch - 1.5, height: HIGH,
        rx: 1, fill: block < there ? colour : 'none', stroke: block < there ? colour : 'var(--y-line)', 'stroke-width': 0.8,
        'data-key': `${name}-${block}`, 'data-thing': name })),
    ];
  }

  yaie.controlled('kv-tiers', {
    plays: 'time',
    controls: (data) => [
      { name: 'time', label: 'time', min: 0, max: TICKS, step: 1, value: 12, format: (tick) => `${Math.round((100 * tick) / TICKS)}%` },
      { name: 'tokens', label: 'tokens of the prefix', min: 8, max: 17, step: 1, value: 12, format: power },
      { name: 'model', label: 'model', options: options(data.models), value: 'llama-8b' },
      { name: 'rate', label: 'at', options: [200, 400, 640, 800].map((rate) => [`${rate}`, `${rate} TFLOP/s`]), value: '640' },
      { name: 'share', label: 'bandwidths', options: [['1', 'as promised'], ['0.5', 'half of that']], value: '1' },
    ],
    draw(stage, values, data) {
      const found = ways(values, data), last = Math.max(...found.map(({ seconds }) => seconds));
      const least = Math.min(...found.map(({ seconds }) => seconds)), now = (values.time / TICKS) * last;
      const width = room(stage), inner = width - 2 * LEFT;
      const before = found.slice(1).filter(({ seconds }) => seconds < found[0].seconds).map(({ name }) => name.toLowerCase());
      const said = `${values.time ? `After ${show(now, 'seconds')} of ${show(last, 'seconds')}` : 'All begin'}. Computing ${power(values.tokens)} tokens again takes `
        + `${show(found[0].seconds, 'seconds')}. `
        + `${before.length ? `Fetching is faster from: ${before.join(', ')}.` : 'Fetching is slower from everywhere.'}`;
      stage.append(picture(width, found.length * ROW, said, found.map((way, at) => strip(way, at, now,
        { inner, narrow: isNarrow(stage), best: way.seconds === least }))),
      legend([{ fill: 'var(--y-orange)' }, 'computed'], [{ fill: 'var(--y-blue)' }, 'fetched'], [{ fill: 'var(--y-green)' }, 'there first'],
        [{ fill: 'none', stroke: 'var(--y-line)' }, 'not there yet']));
      return said;
    },
  });
})();
