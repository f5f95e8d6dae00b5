// What one sequence keeps of its past, against the length of its context: keys and values of some layers and states of the
// others, with copies of the state or without, beside what attention in all layers would keep.
'use strict';

const stateMemory = (() => {
  /** A state in bytes: of each layer the matrices of its heads in float32, and a tail of inputs in bfloat16. */
  function stateOf({ stateLayers, stateHeads = 0, rows = 0, columns = 0, tailChannels, tail }) {
    return stateLayers * (stateHeads * rows * columns * 4 + tailChannels * tail * 2);
  }

  /** All in bytes. tokens: of context. spacing: tokens from one copy of the state to the next; 0: none is kept. */
  function sizes(model, { tokens, spacing }) {
    const layer = 2 * model.kvHeads * model.headDim * 2, state = stateOf(model);
    const [kv, everywhere] = [model.attentionLayers, model.attentionLayers + model.stateLayers].map((layers) => layers * layer * tokens);
    const copies = spacing ? Math.floor(tokens / spacing) * state : 0;
    return { kv, state, copies, all: kv + state + copies, everywhere };
  }

  /** From how many tokens on a hybrid keeps less than with attention in all layers, without copies. */
  const crossing = (model) => stateOf(model) / (model.stateLayers * 2 * model.kvHeads * model.headDim * 2);

  return { stateOf, sizes, crossing };
})();

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const { show } = yaie.calculator;
  const [LEAST, LAST] = [5, 20]; // powers of two of the context
  const [LOW, HIGH] = [4, 12]; // powers of ten of bytes
  const NAMES = { 4: '10 kB', 6: '1 MB', 8: '100 MB', 10: '10 GB', 12: '1 TB' };
  const LINES = [
    ['everywhere', { stroke: 'var(--y-grey)', 'stroke-dasharray': '6 4' }, 'attention in all layers'],
    ['state', { stroke: 'var(--y-orange)', 'stroke-dasharray': '2 3' }, 'the state alone'],
    ['all', { stroke: 'var(--y-blue)', 'stroke-width': 3 }, 'this model'],
  ];
  const count = (value) => Math.round(value).toLocaleString('en');
  const power = (value) => count(2 ** value);

  yaie.controlled('state-memory', {
    plays: 'context',
    tallest: () => [{}, { model: 'granite4-h-micro', context: LAST, spacing: '512' }, { model: 'qwen35-4b', context: LAST, spacing: '4096' },
      { context: LEAST, spacing: '512' }],
    controls: (data) => [
      { name: 'context', label: 'tokens of context', min: LEAST, max: LAST, step: 1, value: 17, format: power },
      { name: 'model', label: 'model', options: Object.entries(data.models).map(([key, { label }]) => [key, label]), value: 'qwen35-4b' },
      { name: 'spacing', label: 'copies of the state', options: [['0', 'none'], ['65536', 'every 65,536 tokens'], ['4096', 'every 4,096 tokens'], ['512', 'every 512 tokens']],
        value: '0' },
    ],
    draw(stage, values, data) {
      const model = data.models[values.model], spacing = Number(values.spacing), tokens = 2 ** values.context;
      const width = room(stage), narrow = isNarrow(stage), high = narrow ? 250 : 290;
      const [left, top, right, bottom] = [62, 10, width - 12, high - 30];
      const x = (exponent) => left + ((exponent - LEAST) / (LAST - LEAST)) * (right - left);
      const y = (bytes) => bottom - ((Math.max(LOW, Math.min(HIGH, Math.log10(bytes))) - LOW) / (HIGH - LOW)) * (bottom - top);
      const at = (exponent) => stateMemory.sizes(model, { tokens: 2 ** exponent, spacing });
      const stops = Array.from({ length: 4 * (LAST - LEAST) + 1 }, (_, step) => LEAST + step / 4);
      const line = (key) => stops.map((exponent, nth) => `${nth ? 'L' : 'M'}${x(exponent).toFixed(1)} ${y(at(exponent)[key]).toFixed(1)}`).join('');
      const now = at(values.context), less = now.everywhere / now.all;
      const grid = Object.entries(NAMES).map(([exponent, name]) => [
        svg('line', { x1: left, x2: right, y1: y(10 ** exponent), y2: y(10 ** exponent), stroke: 'var(--y-line)', 'stroke-width': 0.4 }),
        text(left - 6, y(10 ** exponent) + 4, name, { anchor: 'end' })]);
      const ticks = (narrow ? [5, 12, 20] : [5, 8, 11, 14, 17, 20]).map((exponent) =>
        text(x(exponent), bottom + 18, power(exponent), { anchor: exponent === LAST ? 'end' : exponent === LEAST ? 'start' : 'middle' }));
      const copies = spacing ? ` and ${show(now.copies, 'bytes')} of its copies` : '';
      const compared = less >= 1 ? `${less < 1.05 ? 'about as much' : `${Number(less.toPrecision(2))} times as much`}` : `less, ${show(now.everywhere, 'bytes')}`;
      const said = `${count(tokens)} tokens: ${show(now.kv, 'bytes')} of keys and values in ${model.attentionLayers} layers, ${show(now.state, 'bytes')} of state in `
        + `${model.stateLayers}${copies}. Attention in all layers would keep ${compared}. Without copies, the hybrid keeps less from ${count(stateMemory.crossing(model))} tokens on.`;
      stage.append(picture(width, high, said, grid, ticks,
        LINES.map(([key, look]) => svg('path', { d: line(key), fill: 'none', 'stroke-width': 1.8, ...look, 'data-key': `line-${key}`, 'data-thing': key })),
        svg('line', { x1: x(values.context), x2: x(values.context), y1: top, y2: bottom, stroke: 'currentColor', 'stroke-width': 1, 'data-key': 'here' }),
        LINES.map(([key, look]) => svg('circle', { cx: x(values.context), cy: y(now[key]), r: 5, fill: look.stroke, 'data-key': `dot-${key}`, 'data-thing': key }))),
      legend(...LINES.toReversed()
        .map(([key, look, words]) => [{ fill: 'none', 'stroke-width': 2.5, ...look, y: 7, height: 0.01, x: 0, width: 18 }, key === 'all' && spacing ? `${words}, with copies` : words])));
      return said;
    },
  });
})();
