// Pause, slow motion, step by step, back and forth over what is kept, step mode, save, open.

import { html, setText, svg } from './dom.js';
import { save } from './recording.js';

// Drawn, since not every font has these signs.
const ICONS = {
  first: 'M4 3v10M13 3L6 8l7 5z', back: 'M11 3L4 8l7 5z', play: 'M4 3l9 5-9 5z', pause: 'M5 3v10M11 3v10',
  next: 'M5 3l7 5-7 5z', last: 'M3 3l7 5-7 5zM12 3v10',
  save: 'M8 2v7M5 6.5L8 9.5l3-3zM2.5 10v3.5h11V10', open: 'M8 9.5V2.5M5 5.5L8 2.5l3 3zM2.5 10v3.5h11V10',
};
const icon = (name) => svg('svg', { viewBox: '0 0 16 16', 'aria-hidden': 'true', class: 'x-icon' },
  svg('path', { d: ICONS[name] }));

const SPEEDS = [[2, '2 steps/s'], [6, '6 steps/s'], [15, '15 steps/s'], [60, '60 steps/s']];
/** Of an engine: every step as it comes, or slow motion, behind the engine. */
const LIVE_SPEEDS = [[0, 'as it runs'], ...SPEEDS];

/**
 * @param {object} ctx
 * @param {{open: (text: string, name: string) => void, backToLive: () => void}} calls
 */
export function transport(ctx, calls) {
  const { store } = ctx;
  const button = (label, words, onclick) => html('button', { type: 'button', title: label, 'aria-label': label, onclick }, words);
  let timer = null;
  const stop = () => { clearInterval(timer); timer = null; };
  const isLive = () => ctx.source?.kind === 'live';
  const isSlow = () => isLive() && Number(speed.value) > 0;
  const play = () => {
    stop();
    if (isLive() && !isSlow()) return store.follow();
    if (!isLive() && store.isAtEnd) store.seek(-1);
    else store.hold();
    timer = setInterval(() => {
      if (!store.isAtEnd) store.seek(store.cursor + 1);
      else if (!isLive()) stop(); // more steps of an engine may come
      ctx.redraw();
    }, 1000 / Number(speed.value));
    return ctx.redraw();
  };
  const isPlaying = () => timer !== null || (isLive() && store.following);
  const toggle = () => {
    if (!isPlaying()) return play();
    stop();
    return store.hold();
  };
  const move = (index) => { stop(); store.seek(index); };
  const onward = async () => {
    stop();
    if (!store.isAtEnd || !canStep()) return move(store.cursor + 1);
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
  const end = button('Last step', icon('last'), () => {
    if (!isLive()) move(store.records.length - 1);
    else if (timer !== null) store.seek(store.records.length - 1);
    else store.follow();
  });
  const slider = html('input', { type: 'range', min: 0, max: 0, value: 0, 'aria-label': 'Step', class: 'x-slider',
    oninput: () => move(Number(slider.value)) });
  const place = html('output', { class: 'x-place' });
  const speed = html('select', { 'aria-label': 'Speed of playing', onchange: () => isPlaying() && play() });
  /** A recording plays at a speed that one can follow, an engine is shown as it runs. */
  function offerSpeeds(kind) {
    if (speed.dataset.kind === kind) return;
    speed.dataset.kind = kind;
    const [speeds, chosen] = kind === 'live' ? [LIVE_SPEEDS, 0] : [SPEEDS, 6];
    speed.replaceChildren(...speeds.map(([value, words]) => html('option', { value, selected: value === chosen }, words)));
  }
  const keep = button('Save a recording of the kept steps', [icon('save')], () => save(store));
  const file = html('input', { type: 'file', accept: '.jsonl,application/jsonl,application/json,text/plain', hidden: true,
    'aria-label': 'A recording', onchange: async () => {
      const [chosen] = file.files;
      if (chosen) calls.open(await chosen.text(), chosen.name);
      file.value = '';
    } });
  const open = button('Open a recording', [icon('open')], () => file.click());
  const live = button('Back to the engine', 'Live', () => calls.backToLive());
  let isHeld = null; // whether the engine waits for `step`; null: as its header says
  const canStep = () => isLive() && (isHeld ?? Boolean(store.header.step_mode));
  const engine = html('button', { type: 'button', 'aria-pressed': 'false',
    title: 'The engine computes a step only when you press “one step forward”. Everybody’s requests wait.',
    onclick: async () => {
      try {
        await (canStep() ? ctx.source.resume() : ctx.source.pause());
        isHeld = !canStep();
        play();
        ctx.redraw();
      } catch (error) {
        setText(status, error.message);
      }
    } }, 'Step mode');
  const status = html('span', { class: 'x-status', role: 'status' });

  return {
    stop, play, move, status,
    /** The engine waits for steps, or no longer does; null: as its header says. */
    hold(held) {
      isHeld = held;
      ctx.redraw();
    },
    say: (words) => setText(status, words),
    element: html('div', { class: 'x-transport', role: 'group', 'aria-label': 'Steps' },
      html('span', { class: 'x-buttons' }, begin, back, playing, next, end), slider, place,
      html('span', { class: 'x-buttons x-options' }, speed, engine, keep, open, live, file)),
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
      offerSpeeds(isLive() ? 'live' : 'recording');
      const label = isPlaying() ? 'Pause' : 'Play';
      playing.dataset.playing = String(isPlaying());
      playing.setAttribute('aria-label', label);
      playing.title = label === 'Pause' && isLive() ? 'Pause this picture; the engine goes on' : label;
      slider.max = Math.max(0, records.length - 1);
      slider.value = Math.max(0, cursor);
      slider.setAttribute('aria-valuetext', `step ${state.n}`);
      slider.disabled = records.length === 0;
      setText(place, records.length ? `step ${state.n} of ${records.at(-1).n}` : 'no step yet');
      back.disabled = begin.disabled = cursor <= 0;
      next.disabled = store.isAtEnd && !canStep();
      keep.disabled = records.length === 0;
      engine.hidden = !isLive() || !(header.step_mode || ctx.source.canPace);
      engine.setAttribute('aria-pressed', String(canStep()));
      live.hidden = !ctx.canGoLive || isLive();
    },
  };
}
