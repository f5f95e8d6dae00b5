// What a pass over so many tokens takes at least: reading the weights once, and two FLOPs of each weight for each token.
// Left out are keys and values, attention's own products and activations.
'use strict';

const passTime = (() => {
  /**
   * Seconds of reading and of arithmetic (at the machine's best and worst rate), and what is read and computed. prompt: the
   * tokens are of one prompt, whose last token alone meets the matrix of the logits; else each is the last of a request.
   */
  function times(model, machine, { tokens, prompt }) {
    const { layers, heads, kv_heads: kvHeads, head_dim: dim, hidden, ffn, vocab } = model;
    const matrices = layers * (hidden * (heads + 2 * kvHeads) * dim + heads * dim * hidden + 3 * hidden * ffn);
    const head = vocab * hidden, bytes = machine.width * (matrices + head);
    const flops = 2 * (matrices * tokens + head * (prompt ? 1 : tokens));
    const [worst, best] = machine.compute;
    return { bytes, flops, read: bytes / machine.bandwidth, best: flops / best, worst: flops / worst };
  }

  /** How many decoding requests it takes until the arithmetic is as long as the reading, at the worst and the best rate. */
  const borders = ({ width, bandwidth, compute }) => compute.map((rate) => (width * rate) / (2 * bandwidth));

  return { times, borders };
})();

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const { hatching } = yaie.timeline;
  const { show } = yaie.calculator;
  const STOPS = [1, 2, 4, 8, 16, 32, 64, 96, 128, 144, 159, 172, 185, 200, 256, 384, 512, 768, 1000];
  const count = (value) => Math.round(value).toLocaleString('en');
  const three = (value) => Number(value.toPrecision(3)).toLocaleString('en');
  const RUNS = [{ model: 'llama-8b', machine: 'h200' }, { model: 'tutor', machine: 'cpu' }];
  const [TOP, HIGH, GAP] = [26, 34, 34];
  const FOOT = TOP + 2 * HIGH + GAP + 14;

  /** Seconds as a range, in the unit of the longer. */
  function range(best, worst) {
    const [from, to] = [show(best, 'seconds'), show(worst, 'seconds')];
    if (from === to) return to;
    const unit = to.split(' ')[1];
    return from.endsWith(` ${unit}`) ? `${from.split(' ')[0]} to ${to}` : `${from} to ${to}`;
  }

  /** Round numbers below the end of an axis, two to five of them behind zero. */
  function ticks(end) {
    const power = 10 ** Math.floor(Math.log10(end / 3));
    const step = [1, 2, 4].map((factor) => factor * power).findLast((one) => end / one >= 2.5) ?? power;
    return Array.from({ length: Math.floor((end * 0.97) / step) + 1 }, (_, at) => at * step);
  }

  yaie.controlled('pass-time', {
    plays: 'tokens',
    controls: (data) => [
      { name: 'tokens', label: 'tokens in the pass', min: 0, max: STOPS.length - 1, step: 1, value: 6, format: (at) => count(STOPS[at]) },
      { name: 'kind', label: 'each of', options: [['decode', 'a request of its own'], ['prompt', 'one prompt']], value: 'decode' },
      { name: 'run', label: 'model', options: RUNS.map(({ model, machine }, at) => [String(at), `${data.models[model].label}, ${data.machines[machine].label}`]), value: '0' },
    ],
    draw(stage, values, data) {
      const run = RUNS[values.run], model = data.models[run.model], machine = data.machines[run.machine], prompt = values.kind === 'prompt';
      const tokens = STOPS[values.tokens], at = (number) => passTime.times(model, machine, { tokens: number, prompt });
      const now = at(tokens), width = room(stage), narrow = isNarrow(stage), left = 4, right = width - 8;
      // To scale, up to three times the reading: a pass of 1,000 tokens leaves the picture.
      const most = 3 * now.read, x = (seconds) => left + (Math.min(seconds, most) / most) * (right - left);
      const isOver = now.worst > most, [first, second] = [TOP, TOP + HIGH + GAP];
      const bar = (key, from, to, y, look) => svg('rect', { x: x(from), y, width: Math.max(2, x(to) - x(from)), height: HIGH, 'data-key': key, 'data-thing': key, ...look });
      const requests = tokens === 1 ? 'One request' : `${count(tokens)} requests`;
      const what = prompt ? `A prompt of ${tokens === 1 ? 'one token' : `${count(tokens)} tokens`}` : `${requests}, one token each`;
      const bound = now.best > now.read ? 'The arithmetic is longer: the pass is compute-bound.'
        : now.worst > now.read ? 'Which of the two is longer depends on how fast the products run.'
          : `The reading is longer: the pass is memory-bound, and the arithmetic units are idle for ${count(Math.max(1, 100 - Math.ceil((100 * now.worst) / now.read)))}% of it or more.`;
      const least = Math.max(now.read, now.best), pass = show(least, 'seconds');
      const all = `${three(tokens / least)} tokens a second`;
      const gain = prompt ? `${what} takes ${pass} at least, ${all}.` : `${what}: a pass takes ${pass} at least, and ${tokens === 1 ? 'that request gets' : 'all together get'} ${all} at most.`;
      const said = `${gain} ${bound}`;
      stage.append(picture(width, FOOT + 22, `Reading takes ${show(now.read, 'seconds')}, arithmetic ${range(now.best, now.worst)}.`,
        text(left, first - 8, `${narrow ? 'reading' : 'reading the weights'}: ${show(now.bytes, 'bytes')}, ${show(now.read, 'seconds')}`, { 'data-key': 'name-read' }),
        bar('read', 0, now.read, first, { fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)', 'stroke-width': 2 }),
        text(left, second - 8, `arithmetic: ${show(now.flops, 'flops')}, ${range(now.best, now.worst)}`, { 'data-key': 'name-work' }),
        bar('best', 0, now.best, second, { fill: 'var(--y-orange-soft)', stroke: 'var(--y-orange)', 'stroke-width': 2 }),
        now.best < most && x(now.worst) - x(now.best) > 1
          ? svg('g', { 'data-key': 'worst', 'data-thing': 'worst' },
            svg('rect', { x: x(now.best), y: second, width: x(now.worst) - x(now.best), height: HIGH, fill: 'none', stroke: 'var(--y-orange)', 'stroke-width': 2 }),
            hatching(x(now.best), second, x(now.worst) - x(now.best), HIGH)) : null,
        isOver ? text(right - 4, second + 22, '…', { anchor: 'end', size: 18, bold: true }) : null,
        svg('line', { x1: x(now.read), x2: x(now.read), y1: second - 3, y2: FOOT - 2, stroke: 'var(--y-blue)', 'stroke-width': 2, 'stroke-dasharray': '5 4', 'data-key': 'border' }),
        svg('path', { d: `M${left} ${FOOT}H${right}`, stroke: 'currentColor' }),
        ticks(most).map((time, index) => text(x(time), FOOT + 16, index ? show(time, 'seconds') : '0', { anchor: index ? 'middle' : 'start', 'data-key': `tick-${index}` }))),
      legend([{ fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)', 'stroke-width': 2 }, 'memory'],
        [{ fill: 'var(--y-orange-soft)', stroke: 'var(--y-orange)', 'stroke-width': 2 }, 'arithmetic, best rate'],
        [{ fill: 'none', stroke: 'var(--y-orange)', 'stroke-width': 2 }, 'what the worst rate adds (hatched)']));
      return said;
    },
  });
})();
