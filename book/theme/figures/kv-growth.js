// From the keys and values of one token in one layer to a device full of requests, factor by factor.
'use strict';

const kvGrowth = (() => {
  /** Numbers kept for one token in one layer: keys and values of each KV head, or one latent (MLA). */
  const numbers = (model) =>
    model.latent ? model.latent + model.rotary : 2 * model.kv_heads * model.head_dim;

  /** All sizes in bytes. tokens: of one request. width, weightWidth: bytes a number. fits: requests. */
  function sizes(model, { tokens, requests, width, weightWidth, device }) {
    const layer = numbers(model) * width;
    const token = layer * model.layers;
    const request = token * tokens;
    const weights = model.parameters * weightWidth;
    const fits = Math.max(0, Math.floor((device - weights) / request));
    return { layer, token, request, all: request * requests, weights, fits };
  }

  return { numbers, sizes };
})();

(() => {
  const { html } = yaie;
  const STYLE = `
    figure.moving .stage .yk thead, figure.moving .stage .yk tbody tr { background: none; border: 0; }
    figure.moving .stage table.yk { width: 100%; border-collapse: collapse; font-size: 13px; }
    .yk th, .yk td { border: 0; padding: 2px 6px; background: none; text-align: left; vertical-align: baseline; }
    .yk thead th { font-size: 12px; }
    .yk tbody th { font-weight: 600; }
    .yk .yk-bytes { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
    .yk .yk-bar { width: 36%; min-width: 60px; padding-block: 0; }
    .yk-track { display: block; height: 15px; border-inline-start: 1px solid var(--y-line);
      background: linear-gradient(to left, var(--y-line) 1px, transparent 1px) 0 0 / 25% 100%; }
    .yk-track > i { display: block; width: 9px; height: 9px; border-radius: 50%; position: relative; top: 3px; background: var(--y-blue); }
    .yk-weights .yk-track > i { background: var(--y-orange); }
    .yk-memory { position: relative; margin: 26px 0 12px; height: 34px; font-size: 12px; }
    .yk-device, .yk-part { position: absolute; inset-block: 0; box-sizing: border-box; inset-inline-start: 0; }
    .yk-device { border: 2px solid currentColor; pointer-events: none; }
    .yk-device > b { position: absolute; top: -22px; inset-inline-end: 0; white-space: nowrap; }
    .yk-part { border: 1px solid var(--y-line); overflow: hidden; }
    .yk-part.yk-thin { border-inline-width: 0; }
    .yk-part.yk-w { background: var(--y-orange-soft); }
    .yk-part.yk-k { background: var(--y-blue-soft); }
    .yk-part.yk-over { border: 1px dashed var(--y-red);
      background: repeating-linear-gradient(135deg, var(--y-red-soft) 0 6px, transparent 6px 9px); }
    .yk-part > b { display: block; padding: 8px 0; text-align: center; }
    .yk-key { display: flex; flex-wrap: wrap; gap: 0.2em 1.2em; font-size: 12px; }
    .yk-key i { display: inline-block; width: 1.4em; height: 1em; margin-inline-end: 0.4em; vertical-align: -0.15em;
      position: relative; }
    .yk-key .yk-part { position: static; }
    @media (max-width: 480px) {
      figure.moving .stage table.yk { font-size: 12px; }
      .yk th, .yk td { padding: 2px 3px; }
      .yk .yk-bar { min-width: 40px; width: 22%; }
    }`;
  document.head.append(html('style', {}, STYLE));

  const WIDTHS = { fp32: 4, bf16: 2, fp8: 1 };
  const DTYPES = [['fp32', 'float32'], ['bf16', 'bfloat16'], ['fp8', 'fp8']];
  const DEVICES = [['16', '16 GB'], ['24', '24 GB'], ['80', '80 GB'], ['141', '141 GB'],
    ['640', '8 × 80 GB'], ['1128', '8 × 141 GB']];
  const MOST_APART = 100; // requests that are drawn one by one
  const OUTLINED = 0.012; // of the width: a request that is narrower has no outline, or outlines are all one sees
  const count = (value) => value.toLocaleString('en');

  /** Bytes for people: whole below a megabyte, three digits above. */
  function bytes(value) {
    if (value < 1e6) return `${count(value)} B`;
    const [unit, size] = value < 1e9 ? ['MB', 1e6] : value < 1e12 ? ['GB', 1e9] : ['TB', 1e12];
    return `${Number((value / size).toPrecision(value / size >= 1000 ? 4 : 3))} ${unit}`;
  }

  // A dot, since the scale is logarithmic: 10^2 to 10^14 bytes, and each of the four marked quarters is a factor of 1,000.
  const onScale = (value) => `${Math.max(0, Math.min(100, ((Math.log10(value) - 2) / 12) * 100)).toFixed(2)}%`;

  const THINGS = { 'a token, a layer': 'token', 'a token': 'token', 'a request': 'request', 'all requests': 'request', weights: 'weights' };

  function row(name, how, value, kind) {
    return html('tr', { class: kind, 'data-thing': THINGS[name] }, html('th', { scope: 'row' }, name), html('td', {}, how),
      html('td', { class: 'yk-bytes' }, bytes(value)),
      html('td', { class: 'yk-bar', 'aria-hidden': 'true' },
        html('span', { class: 'yk-track' }, html('i', { style: `margin-inline-start: calc(${onScale(value)} - 5px)`, 'data-key': `bar-${name}` }))));
  }

  function ladder(model, size, set) {
    const of = model.latent ? `(${model.latent} + ${model.rotary}) × ${set.width} B`
      : `2 × ${model.kv_heads} heads × ${model.head_dim} × ${set.width} B`;
    const columns = ['', 'factors', 'bytes'].map((name, index) => name
      ? html('th', { scope: 'col', class: index === 2 ? 'yk-bytes' : null }, name) : html('td', {}));
    return html('table', { class: 'yk' },
      html('thead', {}, html('tr', {}, columns, html('td', { class: 'yk-bar', 'aria-hidden': 'true' }, '× 1,000 a mark'))),
      html('tbody', {},
        row('a token, a layer', of, size.layer),
        row('a token', `× ${model.layers} layers`, size.token),
        row('a request', `× ${count(set.tokens)} tokens`, size.request),
        row('all requests', `× ${count(set.requests)}`, size.all),
        row('weights', `${count(Math.round(model.parameters / 1e5) / 10)} million × ${set.weightWidth} B`,
          size.weights, 'yk-weights')));
  }

  /** What lies in memory, to scale; what does not fit is hatched, and lies beyond the device's edge. */
  function memory(size, set) {
    const span = Math.max(set.device, size.weights + size.all);
    const at = (value) => `${((100 * value) / span).toFixed(3)}%`;
    const part = (kind, key, from, length, text) => html('div',
      { class: `yk-part ${kind}`, style: `left: ${at(from)}; width: ${at(length)}`, 'data-key': key,
        'data-thing': key === 'weights' ? 'weights' : 'request' }, text && html('b', {}, text));
    const label = (length, text) => (length / span > 0.012 * text.length + 0.01 ? text : null);

    const held = size.weights > set.device ? 'yk-over' : 'yk-w';
    const parts = [part(held, 'weights', 0, size.weights, label(size.weights, 'weights'))];
    const groups = set.requests > MOST_APART
      ? [[0, Math.min(set.requests, size.fits)], [Math.min(set.requests, size.fits), set.requests]]
      : Array.from({ length: set.requests }, (_, index) => [index, index + 1]);
    for (const [first, end] of groups.filter(([from, to]) => to > from)) {
      const length = size.request * (end - first);
      const text = end - first === 1 ? `${end}` : `${count(first + 1)}–${count(end)}`;
      const kind = `${end > size.fits ? 'yk-over' : 'yk-k'}${length / span < OUTLINED ? ' yk-thin' : ''}`;
      parts.push(part(kind, `request-${first}`, size.weights + first * size.request, length, label(length, text)));
    }
    const device = html('div', { class: 'yk-device', style: `width: ${at(set.device)}`, 'data-key': 'device' },
      html('b', {}, `${count(set.device / 1e9)} GB`));
    return html('div', { class: 'yk-memory', 'aria-hidden': 'true' }, parts, device);
  }

  function legend(set) {
    const entry = (kind, text) => html('span', {}, html('i', { class: `yk-part ${kind}` }), text);
    return html('div', { class: 'yk-key', 'aria-hidden': 'true' }, entry('yk-w', 'weights'),
      entry('yk-k', set.requests > MOST_APART ? 'requests' : 'a request each'), entry('yk-over', 'does not fit'));
  }

  function say(model, size, set) {
    const kib = Number((size.token / 1024).toFixed(1));
    const token = `One token takes ${count(kib)} KiB`;
    const request = `one request of ${count(set.tokens)} tokens ${bytes(size.request)}`;
    const beyond = set.tokens > model.context
      ? ` (The model itself ends at ${count(model.context)} tokens.)` : '';
    if (size.weights > set.device) {
      const devices = Math.ceil(size.weights / set.device);
      return `${token}, ${request}. The weights alone, ${bytes(size.weights)}, need ${devices} such devices.${beyond}`;
    }
    const fitting = size.fits > 1 ? `${count(size.fits)} such requests fit` : `${size.fits ? 'one' : 'no'} such request fits`;
    const share = Math.round((100 * (size.weights + size.all)) / set.device);
    const outcome = set.requests > size.fits ? `${count(set.requests)} and the weights would need ${count(share)}% of it`
      : `${count(set.requests)} of them and the weights take ${share}% of it`;
    return `${token}, ${request}. Beside the weights ${fitting} in `
      + `${count(set.device / 1e9)} GB; ${outcome}.${beyond}`;
  }

  yaie.controlled('kv-growth', {
    plays: 'tokens',
    tallest: () => [{}, { model: 'deepseek-v3' }, { tokens: 17, requests: 256 }, { model: 'tutor', tokens: 17, requests: 256 }, { model: 'llama-8b-mha', tokens: 17, requests: 256 }],
    controls: (data) => [
      { name: 'model', label: 'model', value: 'llama-8b',
        options: Object.entries(data.models).map(([key, model]) => [key, model.label]) },
      { name: 'kv', label: 'keys and values in', options: DTYPES, value: 'bf16' },
      { name: 'dtype', label: 'weights in', options: DTYPES, value: 'bf16' },
      { name: 'device', label: 'memory', options: DEVICES, value: '80' },
      { name: 'tokens', label: 'tokens a request', min: 7, max: 17, step: 1, value: 10,
        format: (value) => count(2 ** value) },
      { name: 'requests', label: 'requests', min: 1, max: 256, step: 1, value: 8 },
    ],
    draw(stage, values, data) {
      const model = data.models[values.model];
      const set = {
        tokens: 2 ** values.tokens, requests: values.requests, device: values.device * 1e9,
        width: WIDTHS[values.kv], weightWidth: WIDTHS[values.dtype],
      };
      const size = kvGrowth.sizes(model, set);
      stage.append(ladder(model, size, set), memory(size, set), legend(set));
      return say(model, size, set);
    },
  });
})();
