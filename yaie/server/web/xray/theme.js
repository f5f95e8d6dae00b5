// The colours that canvases draw with, read from the style sheet once for each theme.

import { NUM_HUES } from './names.js';

const NAMES = ['ink', 'muted', 'faint', 'line', 'card', 'accent', 'warn', 'good', 'cached', 'soft'];

/** @returns {object} colour by name, `hues` and `onHue` (what is legible on them), and the fonts */
function read(element) {
  const style = getComputedStyle(element);
  const value = (name) => style.getPropertyValue(`--x-${name}`).trim();
  return {
    ...Object.fromEntries(NAMES.map((name) => [name, value(name)])),
    hues: Array.from({ length: NUM_HUES + 1 }, (_, index) => value(`hue-${index}`)),
    onHue: value('on-hue'),
    font: style.fontFamily,
  };
}

/** Colours of `element`'s theme, and a call of `changed` whenever that is another one. */
export function watchTheme(element, changed, signal) {
  const theme = { now: read(element) };
  const again = () => {
    theme.now = read(element);
    changed();
  };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again, { signal });
  const observer = new MutationObserver(again);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ['class', 'data-theme', 'style'] });
  signal.addEventListener('abort', () => observer.disconnect());
  return theme;
}
