// The figures over time: tokens per second, time to first token, KV use, hit rate; each with its last value.

import { html, setText, svg } from './dom.js';

const WIDTH = 120, HEIGHT = 34, MOST = 240;

/** Over about half a second, so that the number can be read: tokens drawn, by the seconds that they took. */
export function tokensPerSecond(records, at) {
  const last = records[at];
  if (!last) return null;
  let tokens = 0, from = at;
  while (from > 0 && last.t - records[from].t < 0.5) {
    tokens += (records[from].rows ?? []).reduce((sum, { out }) => sum + (out?.length ?? 0), 0);
    from -= 1;
  }
  const seconds = last.t - records[from].t;
  return seconds > 0 ? tokens / seconds : null;
}

const average = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / numbers.length;

export const FIGURES = [
  { name: 'tokens', label: 'Tokens per second', show: (value) => value.toFixed(value < 100 ? 1 : 0),
    at: (records, index) => tokensPerSecond(records, index) },
  { name: 'ttft', label: 'Time to first token', show: (value) => (value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(2)} s`),
    at: (records, index) => {
      const seconds = Object.values(records[index].stats?.ttft ?? {});
      return seconds.length ? average(seconds) : null;
    }, holds: true },
  { name: 'kv', label: 'KV cache in use', show: (value) => `${(100 * value).toFixed(0)}%`, most: 1,
    at: (records, index) => records[index].stats?.kv_usage ?? null },
  { name: 'hits', label: 'Prefix hit rate', show: (value) => `${(100 * value).toFixed(0)}%`, most: 1,
    at: (records, index) => records[index].stats?.hit_rate ?? null },
];

/** The values of a figure over the records that end at `cursor`; what has none repeats the one before. */
export function series(figure, records, cursor) {
  const from = Math.max(0, cursor + 1 - MOST);
  const values = [];
  for (let index = from; index <= cursor; index += 1) {
    const value = figure.at(records, index);
    values.push(value ?? (values.length ? values.at(-1) : null));
  }
  return values;
}

function path(values, most) {
  const top = most ?? Math.max(1e-9, ...values.filter((value) => value !== null));
  const step = WIDTH / Math.max(1, values.length - 1);
  let line = '';
  values.forEach((value, index) => {
    if (value === null) return;
    line += `${line ? 'L' : 'M'}${(index * step).toFixed(1)} ${(HEIGHT - 2 - (value / top) * (HEIGHT - 5)).toFixed(1)}`;
  });
  return line;
}

/** The tiles; no panel, they stand in a row of their own. */
export function sparklines(ctx) {
  const tiles = FIGURES.map((figure) => {
    const value = html('strong', { 'data-figure': figure.name }, '–');
    const area = svg('path', { class: 'x-area' }), line = svg('path', { class: 'x-line', fill: 'none' });
    const picture = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, area, line);
    return { figure, value, area, line,
      element: html('div', { class: 'x-tile' }, html('span', {}, figure.label), value, picture) };
  });
  return {
    element: html('div', { class: 'x-tiles' }, tiles.map(({ element }) => element)),
    draw() {
      const { records, cursor } = ctx.store;
      for (const { figure, value, area, line } of tiles) {
        const values = series(figure, records, cursor);
        const last = values.at(-1) ?? null;
        setText(value, last === null ? '–' : figure.show(last));
        const drawn = path(values, figure.most);
        line.setAttribute('d', drawn);
        area.setAttribute('d', drawn ? `${drawn}V${HEIGHT}H${drawn.slice(1).split(' ')[0]}Z` : '');
      }
    },
  };
}
