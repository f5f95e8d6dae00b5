// What a request takes of a device that prefills, of one that decodes, and of the link between them.
'use strict';

(() => {
  const { show } = yaie.calculator;
  const { digits, power, options } = around;

  yaie.calculator('apart', {
    plays: 'prompt',
    controls: (data) => [
      { name: 'prompt', label: 'tokens of the prompt', min: 7, max: 15, step: 1, value: 11, format: power },
      { name: 'answer', label: 'tokens of the answer', min: 4, max: 12, step: 1, value: 8, format: power },
      { name: 'batch', label: 'requests that decode together', min: 0, max: 8, step: 1, value: 6, format: power },
      { name: 'link', label: 'link', options: [['50', '400 Gbit/s'], ['12.5', '100 Gbit/s'], ['450', 'NVLink, 450 GB/s'], ['1.25', '10 Gbit/s']], value: '50' },
      { name: 'model', label: 'model', options: options(data.models), value: 'llama-8b' },
    ],
    rows({ prompt, answer, batch, link, model }, data) {
      const found = around.phases(data.models[model], { prompt: 2 ** prompt, answer: 2 ** answer, batch: 2 ** batch },
        { rate: 600e12, bandwidth: 4.2e12, link: link * 1e9 });
      return [
        { name: 'Prefill', how: 'its share of a device', value: found.prefill, unit: 'seconds', kind: 'second' },
        { name: 'Decode', how: `its share of ${power(answer)} steps`, value: found.decode, unit: 'seconds' },
        { name: 'Moving the blocks', how: show(found.bytes, 'bytes'), value: found.moved, unit: 'seconds', kind: 'none' },
        { name: 'One decode step', how: 'what a stream waits for', value: found.step, unit: 'seconds', kind: 'best' },
      ];
    },
    say(_, [prefill, decode, moved, step]) {
      const ratio = prefill.value / decode.value;
      const devices = ratio >= 1 ? `${digits(ratio)} prefill devices for each that decodes` : `${digits(1 / ratio)} decode devices for each that prefills`;
      return `A balanced pool has ${devices}. In one engine this prompt would hold up every stream for ${digits(prefill.value / step.value)} `
        + `steps, or be cut into chunks; apart, its blocks need ${show(moved.value, 'seconds')} on the link.`;
    },
  });
})();
