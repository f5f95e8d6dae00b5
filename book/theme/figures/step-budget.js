// Where a measured decode step goes, and what a faster part would bring.
'use strict';

(() => {
  const { show } = yaie.calculator;
  const { digits } = around;

  const PARTS = { weights: ['Weights', 'bytes at a copy’s speed'], kv: ['Keys and values', 'bytes at a copy’s speed'],
    gaps: ['Gaps between kernels', 'measured'], rest: ['The rest', 'kernels slower than a copy'] };
  yaie.calculator('step-budget', {
    plays: 'batch',
    controls: (data) => [
      { name: 'batch', label: 'requests', options: Object.keys(data.batches).map((size) => [size, size]), value: '1' },
      { name: 'part', label: 'make faster', options: Object.entries(PARTS).map(([key, [name]]) => [key, name.toLowerCase()]), value: 'gaps' },
      { name: 'factor', label: 'by a factor of', min: 1, max: 10, step: 0.5, value: 1 },
    ],
    rows: ({ batch, part, factor }, data) => Object.entries(PARTS).map(([key, [name, how]]) => (
      { name, how: key === part && factor > 1 ? `${how}, ${digits(factor)} times faster` : how, value: data.batches[batch][key] / (key === part ? factor : 1) / 1e6, unit: 'seconds', kind: key === part ? 'second' : null })),
    say({ batch, part, factor }, rows, data) {
      const { step, kernels } = data.batches[batch];
      const now = rows.reduce((sum, row) => sum + row.value, 0);
      const share = Math.round((100 * data.batches[batch][part]) / step);
      const faster = factor > 1 ? `${digits(factor)} times faster there, the step takes ${show(now, 'seconds')}: ${digits(step / 1e6 / now)} times as fast.`
        : 'Make that part faster, and see what the step gains.';
      return `A step of ${batch} request${batch === '1' ? '' : 's'} takes ${show(step / 1e6, 'seconds')} in ${kernels} kernels; ${PARTS[part][0].toLowerCase()} `
        + `take${/s$/.test(PARTS[part][0]) ? '' : 's'} ${share}%. ${faster}`;
    },
  });
})();
