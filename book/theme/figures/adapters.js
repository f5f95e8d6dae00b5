// A base model and its low-rank adapters, in bytes.
'use strict';

(() => {
  const { digits, power, options } = around;

  yaie.calculator('adapters', {
    plays: 'distinct',
    controls: (data) => [
      { name: 'distinct', label: 'different adapters in the batch', min: 0, max: 8, step: 1, value: 3, format: power },
      { name: 'rank', label: 'rank', min: 3, max: 7, step: 1, value: 4, format: power },
      { name: 'model', label: 'model', options: options(data.models), value: 'llama-8b' },
    ],
    rows({ distinct, rank, model }, data) {
      const found = around.adapter(data.models[model], { rank: 2 ** rank, distinct: 2 ** distinct });
      return [
        { name: 'One adapter', how: `${digits(found.numbers / 1e6)} million numbers`, value: found.bytes, unit: 'bytes', kind: 'second' },
        { name: 'The base model', value: found.base, unit: 'bytes' },
        { name: 'A step reads', how: `base and ${power(distinct)} adapters`, value: found.read, unit: 'bytes', kind: 'best' },
        { name: 'As merged models', how: `${power(distinct)} whole copies`, value: found.copies, unit: 'bytes', kind: 'none' },
      ];
    },
    log: true,
    say({ distinct }, [one, base, read]) {
      return `An adapter is ${digits((100 * one.value) / base.value)}% of the model. A step with ${power(distinct)} of them reads `
        + `${digits((100 * (read.value - base.value)) / base.value)}% more than a step without.`;
    },
  });
})();
