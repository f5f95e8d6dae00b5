// Computing a prefix again, or fetching its blocks from a slower place.
'use strict';

(() => {
  const { show } = yaie.calculator;
  const { digits, power, options } = around;

  const FROM = [[64e9, 'Host memory', 'PCIe 5'], [50e9, 'Another machine', '400 Gbit/s'], [7e9, 'Disk', 'NVMe']];
  yaie.calculator('kv-tiers', {
    controls: (data) => [
      { name: 'tokens', label: 'tokens of the prefix', min: 8, max: 17, step: 1, value: 12, format: power },
      { name: 'model', label: 'model', options: options(data.models), value: 'llama-8b' },
      { name: 'rate', label: 'matrix units', min: 100, max: 800, step: 50, value: 400, format: (value) => `${value} TFLOP/s` },
    ],
    rows({ tokens, model, rate }, data) {
      const own = around.again(data.models[model], 2 ** tokens, rate * 1e12);
      const rows = [{ name: 'Compute it again', how: show(own.flops, 'flops'), value: own.seconds, unit: 'seconds', kind: 'second' },
        ...FROM.map(([speed, name, path]) => (
          { name, how: `${show(own.bytes, 'bytes')} at ${digits(speed / 1e9)} GB/s (${path})`, value: own.bytes / speed, unit: 'seconds' }))];
      const least = rows.reduce((best, row) => (row.value < best.value ? row : best));
      return rows.map((row) => (row === least ? { ...row, kind: 'best' } : row));
    },
    say({ tokens }, rows) {
      const faster = rows.slice(1).filter((row) => row.value < rows[0].value).map((row) => row.name.toLowerCase());
      return `Computing ${power(tokens)} tokens again takes ${show(rows[0].value, 'seconds')}. `
        + (faster.length ? `Fetching is faster from: ${faster.join(', ')}.` : 'Fetching is slower from everywhere.');
    },
  });
})();
