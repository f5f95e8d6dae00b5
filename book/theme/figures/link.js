// Links into a figure: #fig-NAME-STEP opens it there. What is chosen beside the step follows: #fig-NAME-STEP;track=swap.
'use strict';

yaie.link = (() => {
  /** The step (from 0 on) and choices that the page's address asks of a figure, or null. */
  function asked(name) {
    const words = decodeURIComponent(location.hash);
    if (!words.startsWith(`#fig-${name}-`)) return null;
    const [step, ...choices] = words.slice(`#fig-${name}-`.length).split(';');
    if (!/^\d+$/.test(step)) return null;
    return { index: Number(step) - 1, choices: Object.fromEntries(choices.map((choice) => choice.split('='))) };
  }

  const to = (name, index, choices) => [`#fig-${name}-${index + 1}`,
    ...Object.entries(choices).map(([key, value]) => `${key}=${value}`)].join(';');

  /** Puts the address into the address bar and, where the browser lets a page do so, onto the clipboard. */
  async function copy(hash) {
    const address = new URL(hash, location.href).href;
    history.replaceState(null, '', hash);
    try {
      await navigator.clipboard.writeText(address);
      return 'Copied';
    } catch {
      return 'In the address bar';
    }
  }

  return { asked, to, copy };
})();
