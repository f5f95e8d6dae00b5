// Where a step of decode and a chunk of prefill lie under the roof of a machine, by counting bytes and FLOPs.
//
// A step computes n sequences with t new tokens each, behind c tokens whose keys and values are cached.
//   P  weights of all layers' matrices: layers · (hidden · (heads + 2 kv_heads) · d + heads · d · hidden
//      + 3 · hidden · ffn)
//   H  weights of the output head: vocab · hidden; it meets the last token of each sequence only
//   FLOPs = 2 · P · n · t + 2 · H · n                 a multiplication and an addition for each weight
//         + 4 · layers · heads · d · n · (keys seen)  QKᵀ and PV; t new tokens see t · c + t (t + 1) / 2 keys
//   bytes = width · (P + H)                           each weight is read once a step, for all tokens
//         + width · 2 · layers · kv_heads · d · n · (c + 2 t)   c + t tokens' K and V read, t written
// Left out: the embedding's few rows, norms, and activations, which a fused kernel keeps on the chip.
//   intensity = FLOPs / bytes;   attainable FLOP/s = min(peak, intensity · bandwidth)
//   shortest time = max(FLOPs / peak, bytes / bandwidth);   tokens/s = n · t / time
// A card's memory holds all weights, with the embedding, of which a step reads few rows, and n · (c + 1) tokens' keys and
// values: D stops at the last n that fits.
'use strict';

const roofline = (() => {
  /** What a step costs. machine: width, bandwidth, compute: [least, most]. */
  function step(model, machine, { sequences, tokens, cached }) {
    const { layers, heads, kv_heads: kvHeads, head_dim: d, hidden, ffn, vocab } = model;
    const matrices = layers * (hidden * (heads + 2 * kvHeads) * d + heads * d * hidden + 3 * hidden * ffn);
    const head = vocab * hidden;
    const seen = tokens * cached + (tokens * (tokens + 1)) / 2;
    const flops = sequences * (2 * matrices * tokens + 2 * head + 4 * layers * heads * d * seen);
    const weightBytes = machine.width * (matrices + head);
    const kvBytes = machine.width * 2 * layers * kvHeads * d * sequences * (cached + 2 * tokens);
    const bytes = weightBytes + kvBytes;

    const peak = machine.compute[1];
    const seconds = Math.max(flops / peak, bytes / machine.bandwidth);
    return {
      flops, bytes, weightBytes, kvBytes, seconds,
      intensity: flops / bytes,
      attainable: flops / seconds,
      bound: flops / peak > bytes / machine.bandwidth ? 'compute' : 'memory',
      tokensPerSecond: (sequences * tokens) / seconds,
    };
  }

  /** Bytes that memory holds: of all weights, and of `cached` tokens and the next one for each sequence. */
  function sizes(model, machine, cached) {
    return { weights: machine.width * model.parameters,
      each: machine.width * 2 * model.layers * model.kv_heads * model.head_dim * (cached + 1) };
  }

  /** How many sequences of `cached` tokens, and the one that each is about to get, the memory holds beside the weights. */
  function room(model, machine, cached) {
    if (!machine.memory) return Infinity;
    const { weights, each } = sizes(model, machine, cached);
    return Math.max(0, Math.floor((machine.memory - weights) / each));
  }

  return { step, sizes, room };
})();

(() => {
  const { html, svg } = yaie;
  const { room, isNarrow, picture, text } = yaie.stage;
  const STYLE = `
    figure.moving .stage .yr thead, figure.moving .stage .yr tbody tr { background: none; border: 0; }
    figure.moving .stage table.yr { width: 100%; border-collapse: collapse; font-size: 13px; margin-top: 0.4em;
      white-space: nowrap; }
    .yr th, .yr td { border: 0; padding: 2px 6px; background: none; text-align: right;
      font-variant-numeric: tabular-nums; }
    .yr th:first-child { text-align: left; }
    .yr thead th { font-size: 12px; }`;
  document.head.append(html('style', {}, STYLE));

  const BOX = { left: 44, right: 8, top: 10, bottom: 40 };
  const INTENSITY = [-1, 4.5]; // decades of FLOPs per byte that are shown
  const DECADES = 5; // of FLOP/s
  const MEMORY = 52; // px below the plot for the card's memory
  const PREFIX = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, '']];
  const count = (value) => value.toLocaleString('en');
  const short = (value) => count(Number(value.toPrecision(3)));

  function scaled(value, unit) {
    const [size, letter] = PREFIX.find(([least]) => value >= least) ?? [1, ''];
    return `${short(value / size)} ${letter}${unit}`;
  }
  const rate = (value) => count(value < 100 ? Number(value.toPrecision(3)) : Math.round(value));
  const time = (seconds) => (seconds < 1e-3 ? `${Number((seconds * 1e6).toPrecision(3))} µs`
    : seconds < 1 ? `${Number((seconds * 1e3).toPrecision(3))} ms` : `${Number(seconds.toPrecision(3))} s`);

  /** Places of a log-log plot whose highest decade holds `peak`; its edges in px. */
  function axes(peak, width, height) {
    const top = Math.ceil(Math.log10(peak) + 0.2);
    const edges = { left: BOX.left, right: width - BOX.right, top: BOX.top, bottom: height - BOX.bottom };
    const span = (low, high, from, to) => (value) =>
      from + ((Math.log10(value) - low) / (high - low)) * (to - from);
    return {
      x: span(...INTENSITY, edges.left, edges.right),
      y: span(top - DECADES, top, edges.bottom, edges.top),
      top, edges, height,
    };
  }

  function grid({ x, y, top, edges, height }, narrow) {
    const line = (x1, y1, x2, y2) => svg('line', { x1, y1, x2, y2, stroke: 'var(--y-line)', 'stroke-width': 0.5 });
    const marks = [];
    for (let decade = INTENSITY[0]; decade <= INTENSITY[1]; decade += 1) {
      const at = x(10 ** decade);
      marks.push(line(at, edges.top, at, edges.bottom));
      if (!narrow || decade % 2 === 0) marks.push(text(at, edges.bottom + 15, count(10 ** decade), { anchor: 'middle' }));
    }
    for (let decade = top - DECADES; decade <= top; decade += 1) {
      const at = y(10 ** decade);
      marks.push(line(edges.left, at, edges.right, at), text(edges.left - 5, at + 4, scaled(10 ** decade, ''), { anchor: 'end' }));
    }
    return [...marks, text((edges.left + edges.right) / 2, height - 6, narrow ? 'FLOPs per byte' : 'arithmetic intensity, FLOPs per byte', { anchor: 'middle' }),
      text(edges.left + 6, edges.top + 12, 'FLOP/s')];
  }

  /** The slope of the bandwidth up to the ridge, then the flat roof; the least of what was measured dashed, with its ridge. */
  function roof(machine, { x, y, top, edges }) {
    const [least, most] = machine.compute;
    const [ridge, first] = [most, least].map((peak) => peak / machine.bandwidth);
    const foot = Math.max(10 ** INTENSITY[0], 10 ** (top - DECADES) / machine.bandwidth);
    const path = `M ${x(foot)} ${y(foot * machine.bandwidth)} L ${x(ridge)} ${y(most)} L ${edges.right} ${y(most)}`;
    const flat = `M ${x(first)} ${y(least)} L ${edges.right} ${y(least)}`;
    const stroke = { fill: 'none', stroke: 'currentColor' };
    return [svg('path', { d: path, ...stroke, 'stroke-width': 2.5, 'data-key': 'roof', 'data-thing': 'roof' }),
      svg('path', { d: flat, ...stroke, 'stroke-width': 1.2, 'stroke-dasharray': '5 4', 'data-key': 'least', 'data-thing': 'roof' }),
      svg('rect', { x: x(first), y: y(least), width: x(ridge) - x(first), height: edges.bottom - y(least), fill: 'var(--y-grey-soft)',
        'fill-opacity': 0.6, 'data-key': 'ridges', 'data-thing': 'ridge' }),
      svg('line', { x1: x(ridge), x2: x(ridge), y1: y(most), y2: edges.bottom, stroke: 'currentColor',
        'stroke-width': 1, 'stroke-dasharray': '2 4', 'data-key': 'ridge', 'data-thing': 'ridge' }),
      text(edges.right - 4, y(most) - 6, `${scaled(most, 'FLOP/s')}`, { anchor: 'end', 'data-key': 'most', 'data-thing': 'roof' }),
      text(x(ridge) + 5, edges.bottom - 6, `balance: ${between(first, ridge)}`, { 'data-key': 'ridge-name', 'data-thing': 'ridge' }),
      text(x(foot) + 8, y(foot * machine.bandwidth) + 20, scaled(machine.bandwidth, 'B/s'), { 'data-key': 'slope', 'data-thing': 'roof' })];
  }

  /** "159 to 185", or "5.8 to 7.3" where they are small. */
  function between(low, high) {
    const [from, to] = [low, high].map((value) => (value < 10 ? value.toFixed(1) : count(Math.round(value))));
    return from === to ? from : `${from} to ${to}`;
  }

  const SHAPES = { // decode is a disc, prefill a square: told apart without colour
    D: ['circle', { r: 10, fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)', 'stroke-width': 2.5 }, 'decode'],
    P: ['rect', { x: -10, y: -10, width: 20, height: 20, fill: 'var(--y-orange-soft)', stroke: 'var(--y-orange)',
      'stroke-width': 2.5 }, 'prefill'],
  };

  function point(letter, cost, { x, y, edges }) {
    const [tag, attributes, thing] = SHAPES[letter];
    const at = [x(cost.intensity), y(cost.attainable)];
    return [
      svg('line', { x1: at[0], x2: at[0], y1: at[1] + 10, y2: edges.bottom, stroke: attributes.stroke,
        'stroke-width': 1.5, 'stroke-dasharray': '4 3', 'data-key': `drop-${letter}`, 'data-thing': thing }),
      svg('g', { transform: `translate(${at[0].toFixed(1)} ${at[1].toFixed(1)})`, 'data-key': `point-${letter}`, 'data-thing': thing },
        svg(tag, attributes), text(0, 5, letter, { anchor: 'middle', size: 13, bold: true }))];
  }

  /** A row for each point; on a phone a column. */
  function table(costs, narrow) {
    const heads = ['FLOPs', 'bytes', 'FLOPs/byte', 'bound by', 'a step', 'tokens/s'];
    const cells = Object.entries(costs).map(([name, cost]) => [name, scaled(cost.flops, ''), scaled(cost.bytes, 'B'),
      short(cost.intensity), cost.bound, time(cost.seconds), rate(cost.tokensPerSecond)]);
    const lines = [['', ...heads], ...cells];
    const shown = narrow ? lines[0].map((_, row) => lines.map((line) => line[row])) : lines;
    const thing = (words) => ({ D: 'decode', P: 'prefill' })[words[0]] ?? null;
    const [first, ...rest] = shown;
    const head = (words, scope) => html('th', { scope, 'data-thing': / (decode|prefill)$/.test(words) ? thing(words) : null }, words);
    return html('table', { class: 'yr' },
      html('thead', {}, html('tr', {}, first.map((words) => (words ? head(words, 'col') : html('td', {}))))),
      html('tbody', {}, rest.map(([name, ...values]) =>
        html('tr', {}, head(name, 'row'), values.map((value) => html('td', {}, value))))));
  }

  /** The card's memory as a bar: weights, keys and values, and what did not fit, hatched, behind its end. */
  function memory(machine, held, { edges, height }, narrow) {
    const [top, thick] = [height + 14, 16];
    const most = Math.min(Math.max(machine.memory, held.asked), 1.5 * machine.memory); // longer ones leave the picture
    const at = (bytes) => edges.left + (Math.min(bytes, most) / most) * (edges.right - edges.left);
    const part = (key, from, to, look) => svg('rect', { x: at(from), y: top, width: Math.max(0, at(to) - at(from)),
      height: thick, 'data-key': key, 'data-thing': 'memory', ...look });
    const stroke = { 'stroke-width': 1 };
    const [weights, filled] = [held.weights, held.weights + held.kv];
    return [svg('defs', {}, svg('pattern', { id: 'roofline-over', width: 5, height: 5, patternUnits: 'userSpaceOnUse' },
      svg('path', { d: 'M-1 1l2-2M0 5l5-5M4 6l2-2', stroke: 'var(--y-red)', 'stroke-width': 1.2 }))),
    part('weights', 0, weights, { fill: 'var(--y-grey-soft)', stroke: 'var(--y-line)', ...stroke }),
    part('kv', weights, filled, { fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)', ...stroke }),
    part('over', filled, Math.max(filled, held.asked), { fill: 'url(#roofline-over)' }),
    svg('line', { x1: at(machine.memory), x2: at(machine.memory), y1: top - 5, y2: top + thick + 5, stroke: 'currentColor',
      'stroke-width': 2.5, 'data-key': 'full', 'data-thing': 'memory' }),
    text(edges.left, top + thick + 14, `${narrow ? '' : 'memory: '}weights ${scaled(weights, 'B')}, ${narrow ? 'KV' : 'keys and values'} `
      + `${scaled(held.kv, 'B')}, of ${scaled(machine.memory, 'B')}`, { 'data-key': 'memory-name', 'data-thing': 'memory' })];
  }

  function say(decode, prefill, values, model) {
    const share = Math.round((100 * decode.kvBytes) / decode.bytes);
    const beyond = Math.max(values.cached, values.chunk) > model.context
      ? ` (The model ends at ${count(model.context)}.)` : '';
    const requests = values.sequences === 1 ? 'one request' : `${count(values.sequences)} requests`;
    const full = values.asked > values.sequences
      ? `Only ${count(values.sequences)} of the ${count(values.asked)} fit. ` : '';
    return `${full}Decode of ${requests} is ${decode.bound}-bound at ${short(decode.intensity)} FLOPs per byte, ${share}% `
      + `of its bytes are keys and values: at most ${rate(decode.tokensPerSecond)} tokens/s. `
      + `Prefill of ${count(values.chunk)} tokens is ${prefill.bound}-bound at ${short(prefill.intensity)}: `
      + `at most ${rate(prefill.tokensPerSecond)} tokens/s.${beyond}`;
  }

  yaie.controlled('roofline', {
    controls: (data) => {
      const options = (table) => Object.entries(table).map(([key, { label }]) => [key, label]);
      const power = (exponent) => count(2 ** exponent);
      return [
        { name: 'machine', label: 'machine', options: options(data.machines), value: 'h200' },
        { name: 'model', label: 'model', options: options(data.models), value: 'llama-8b' },
        { name: 'batch', label: 'decoding requests', min: 0, max: 10, step: 1, value: 0, format: power },
        { name: 'context', label: 'tokens before each', min: 4, max: 17, step: 1, value: 10, format: power },
        { name: 'chunk', label: 'prompt tokens', min: 0, max: 14, step: 1, value: 10, format: power },
      ];
    },
    draw(stage, values, data) {
      const [machine, model] = [data.machines[values.machine], data.models[values.model]];
      const [asked, cached, chunk] = [values.batch, values.context, values.chunk].map((value) => 2 ** value);
      const sequences = Math.min(asked, roofline.room(model, machine, cached));
      const decode = roofline.step(model, machine, { sequences, tokens: 1, cached });
      const prefill = roofline.step(model, machine, { sequences: 1, tokens: chunk, cached: 0 });

      const narrow = isNarrow(stage), width = room(stage), height = narrow ? 205 : 300;
      const places = axes(machine.compute[1], width, height);
      const said = say(decode, prefill, { sequences, asked, cached, chunk }, model);
      const { weights, each } = roofline.sizes(model, machine, cached);
      const held = { weights, kv: sequences * each, asked: weights + asked * each };
      stage.append(
        picture(width, height + MEMORY, `Roofline of ${machine.label}. ${said}`,
          grid(places, narrow), roof(machine, places), point('P', prefill, places), point('D', decode, places),
          machine.memory ? memory(machine, held, places, narrow) : []),
        table({ 'D decode': decode, 'P prefill': prefill }, narrow));
      return said;
    },
  });
})();
