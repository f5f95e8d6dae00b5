// Pause, step by step, back and forth over what is kept, save, open.

import { html, setText, svg } from './dom.js';
import { save } from './recording.js';

// Drawn, since not every font has these signs.
const ICONS = {
  first: 'M4 3v10M13 3L6 8l7 5z', back: 'M11 3L4 8l7 5z', play: 'M4 3l9 5-9 5z', pause: 'M5 3v10M11 3v10',
  next: 'M5 3l7 5-7 5z', last: 'M3 3l7 5-7 5zM12 3v10',
};
const icon = (name) => svg('svg', { viewBox: '0 0 16 16', 'aria-hidden': 'true', class: 'x-icon' },
  svg('path', { d: ICONS[name] }));

const SPEEDS = [[2, '2 steps/s'], [6, '6 steps/s'], [15, '15 steps/s'], [60, '60 steps/s']];

/**
 * @param {object} ctx
 * @param {{open: (text: string, name: string) => void, backToLive: () => void}} calls
 */
export function transport(ctx, calls) {
  const { store } = ctx;
  const button = (label, words, onclick) => html('button', { type: 'button', title: label, 'aria-label': label, onclick }, words);
  let timer = null;
  const stop = () => { clearInterval(timer); timer = null; };
  const play = () => {
    stop();
    if (ctx.source?.kind === 'live') return store.follow();
    if (store.isAtEnd) store.seek(-1);
    timer = setInterval(() => {
      if (store.isAtEnd) stop();
      else store.seek(store.cursor + 1);
      ctx.redraw();
    }, 1000 / Number(speed.value));
    return ctx.redraw();
  };
  const isPlaying = () => timer !== null || (ctx.source?.kind === 'live' && store.following);
  const toggle = () => {
    if (!isPlaying()) return play();
    stop();
    return store.hold();
  };
  const move = (index) => { stop(); store.seek(index); };
  const onward = async () => {
    stop();
    if (!store.isAtEnd || !store.header.step_mode || !ctx.source?.step) return move(store.cursor + 1);
    try {
      store.follow();
      await ctx.source.step();
    } catch (error) {
      setText(status, error.message);
    }
    return undefined;
  };

  const playing = button('Play', [icon('play'), icon('pause')], toggle);
  const begin = button('First kept step', icon('first'), () => move(0));
  const back = button('One step back', icon('back'), () => move(store.cursor - 1));
  const next = button('One step forward', icon('next'), onward);
  const end = button('Last step', icon('last'), () => (ctx.source?.kind === 'live' ? store.follow() : move(store.records.length - 1)));
  const slider = html('input', { type: 'range', min: 0, max: 0, value: 0, 'aria-label': 'Step', class: 'x-slider',
    oninput: () => move(Number(slider.value)) });
  const place = html('output', { class: 'x-place' });
  const speed = html('select', { 'aria-label': 'Speed of playing', onchange: () => timer && play() },
    SPEEDS.map(([value, words]) => html('option', { value, selected: value === 6 }, words)));
  const keep = button('Save a recording of the kept steps', 'Save', () => save(store));
  const file = html('input', { type: 'file', accept: '.jsonl,application/jsonl,application/json,text/plain', hidden: true,
    'aria-label': 'A recording', onchange: async () => {
      const [chosen] = file.files;
      if (chosen) calls.open(await chosen.text(), chosen.name);
      file.value = '';
    } });
  const open = button('Open a recording', 'Open', () => file.click());
  const live = button('Back to the engine', 'Live', () => calls.backToLive());
  const engine = button('Let the engine run', 'Run engine', async () => {
    try {
      store.follow();
      await (engine.dataset.running === 'true' ? ctx.source.pause() : ctx.source.resume());
      engine.dataset.running = String(engine.dataset.running !== 'true');
      ctx.redraw();
    } catch (error) {
      setText(status, error.message);
    }
  });
  const status = html('span', { class: 'x-status', role: 'status' });

  return {
    stop,
    say: (words) => setText(status, words),
    element: html('div', { class: 'x-transport', role: 'group', 'aria-label': 'Steps' },
      html('span', { class: 'x-buttons' }, begin, back, playing, next, end), slider, place,
      html('span', { class: 'x-buttons' }, speed, engine, keep, open, live, file), status),
    /** Space plays and pauses, commas and full stops step, wherever the keyboard's attention is. */
    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.('input, select, textarea, button')) return;
      const act = { ' ': toggle, ',': () => move(store.cursor - 1), '.': onward }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    },
    draw() {
      const { records, cursor, header, state } = store;
      const label = isPlaying() ? 'Pause' : 'Play';
      playing.dataset.playing = String(isPlaying());
      playing.setAttribute('aria-label', label);
      playing.title = label;
      slider.max = Math.max(0, records.length - 1);
      slider.value = Math.max(0, cursor);
      slider.setAttribute('aria-valuetext', `step ${state.n}`);
      slider.disabled = records.length === 0;
      setText(place, records.length ? `step ${state.n} of ${records.at(-1).n}` : 'no step yet');
      back.disabled = begin.disabled = cursor <= 0;
      next.disabled = store.isAtEnd && !(header.step_mode && ctx.source?.step);
      keep.disabled = records.length === 0;
      speed.hidden = ctx.source?.kind === 'live';
      engine.hidden = !(header.step_mode && ctx.source?.kind === 'live');
      setText(engine, engine.dataset.running === 'true' ? 'Hold engine' : 'Run engine');
      live.hidden = !ctx.canGoLive || ctx.source?.kind === 'live';
    },
  };
}
