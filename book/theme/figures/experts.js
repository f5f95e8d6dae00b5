// How many experts a step of so many tokens reads, and what goes between ranks.
'use strict';

(() => {
  const { show } = yaie.calculator;
  const { digits, power, options } = around;

  yaie.calculator('experts', {
    plays: 'tokens',
    controls: (data) => [
      { name: 'tokens', label: 'tokens in the step', min: 0, max: 12, step: 1, value: 0, format: power },
      { name: 'model', label: 'model', options: options(data.models), value: 'deepseek-v3' },
      { name: 'ranks', label: 'ranks', min: 0, max: 6, step: 1, value: 3, format: power },
    ],
    rows({ tokens, model, ranks }, data) {
      const found = around.experts(data.models[model], { tokens: 2 ** tokens, ranks: 2 ** ranks, width: 2 });
      return [
        { name: 'Weights multiplied, for each token', how: 'its chosen experts', value: found.work, unit: 'bytes', kind: 'best' },
        { name: 'Weights read, in the step', how: `${digits(found.touched)} experts a layer`, value: found.read, unit: 'bytes' },
        { name: 'Weights held', how: 'every expert', value: found.all, unit: 'bytes', kind: 'none' },
        { name: 'Sent between ranks', how: `${digits(found.remote)} other ranks a token`, value: found.sent, unit: 'bytes', kind: 'second' },
      ];
    },
    log: true,
    say({ tokens, model, ranks }, rows, data) {
      const found = around.experts(data.models[model], { tokens: 2 ** tokens, ranks: 2 ** ranks, width: 2 });
      const few = found.each < 64 ? 'too few rows to keep a matrix unit busy' : 'enough rows for an efficient product';
      return `${power(tokens)} token${tokens ? 's' : ''} reach ${digits(found.touched)} of ${data.models[model].count} experts in a layer, `
        + `${digits(found.each)} tokens each: ${few}. The step reads ${show(found.read, 'bytes')}, ${digits(found.read / found.work)} times `
        + 'what one token multiplies by.';
    },
  });
})();
