// What one layer reads to decode one token, by six kinds of attention.
'use strict';

(() => {
  const { show } = yaie.calculator;
  const { digits, power } = around;

  yaie.calculator('attention-kinds', {
    controls: () => [{ name: 'context', label: 'tokens of context', min: 9, max: 20, step: 1, value: 13, format: power }],
    rows: ({ context }, data) => Object.values(data.kinds).map((one) => {
      const { bytes, flops } = around.kinds[one.kind](one, Math.min(2 ** context, one.window ?? Infinity));
      return { name: one.label, how: `${digits(flops / bytes)} FLOPs a byte`, value: bytes, unit: 'bytes',
        kind: flops / bytes > data.ridge ? 'second' : null };
    }),
    log: true,
    top: 2 ** 34, // the first kind's bytes at the longest context, so that a bar grows with its own
    say({ context }, rows, data) {
      const [many, , latent] = rows;
      return `Behind ${power(context)} tokens, keys and values for every head are ${show(many.value, 'bytes')} a layer; the latent is `
        + `${show(latent.value, 'bytes')}. Orange: more than ${data.ridge} FLOPs a byte, so arithmetic is the limit, not memory.`;
    },
  });
})();
