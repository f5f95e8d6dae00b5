// The X-ray: puts store, source and views into an element. The shell calls `mount(element, liveSource(fetch))`,
// viewer.html calls it without a source, for recordings.

import { Names } from './names.js';
import { Store } from './store.js';
import { html, setText } from './dom.js';
import { letScroll } from './chips.js';
import { partsView } from './parts.js';
import { poolView } from './pool-map.js';
import { queuesView } from './queues.js';
import { recordingSource } from './source.js';
import { sparklines } from './sparklines.js';
import { tablesView } from './tables.js';
import { tell } from './story.js';
import { timelineView } from './timeline.js';
import { transport } from './transport.js';
import { treeView } from './tree-view.js';
import { watchTheme } from './theme.js';

function panel(view) {
  const note = html('span', { class: 'x-note' });
  const element = html('section', { class: `x-panel x-panel-${view.name}`, 'aria-labelledby': `x-title-${view.name}` },
    html('header', {}, html('h2', { id: `x-title-${view.name}` }, view.title), note, view.tools ?? null),
    view.body);
  return { view, element, note };
}

/**
 * @param {HTMLElement} element what is in it is replaced
 * @param {?import('./source.js').Source} live the engine; null for recordings only
 * @returns {{store: Store, open: (text: string, name?: string) => Promise<void>, draw: () => void, connect: () => void,
 *   go: (index: number) => void, play: () => void, disconnect: () => void, unmount: () => void}}
 */
export function mount(element, live = null) {
  const ended = new AbortController();
  const store = new Store();
  let names = new Names(), reading = null, wanted = false;

  const ctx = {
    store, source: null, canGoLive: Boolean(live), focus: { request: null, block: null },
    get names() { return names; },
    /** What is pointed at: all views show it. */
    hover(focus) {
      if (focus.request === ctx.focus.request && focus.block === ctx.focus.block) return;
      ctx.focus = { ...ctx.focus, ...focus };
      ctx.redraw();
    },
    /** Draw once before the next frame, however often it is asked for, and not while nobody sees it. */
    redraw() {
      if (wanted) return;
      wanted = true;
      requestAnimationFrame(() => {
        wanted = false;
        if (!ended.signal.aborted && root.clientWidth) draw();
      });
    },
  };

  const said = html('p', { class: 'x-story' });
  const pointed = html('p', { class: 'x-pointed', role: 'status' });
  const controls = transport(ctx, { open, backToLive: () => begin(live) });
  const tiles = sparklines(ctx);
  const [timeline, queues, pool, tables, tree, parts] = [timelineView, queuesView, poolView, tablesView, treeView, partsView]
    .map((make) => panel(make(ctx)));
  const views = [timeline, queues, pool, tables, tree, parts];
  const column = (name, ...panels) => html('div', { class: `x-column x-column-${name}` }, panels.map((each) => each.element));
  const root = html('div', { class: 'xray' }, controls.element, tiles.element,
    html('div', { class: 'x-told' }, said, html('div', { class: 'x-beside' }, pointed, controls.status)), html('div', { class: 'x-panels' },
      timeline.element, column('requests', queues, tables), column('memory', pool, tree), parts.element));
  element.replaceChildren(root);
  ctx.theme = watchTheme(root, ctx.redraw, ended.signal);

  function describeRequest(id) {
    const request = store.state.requests.get(id);
    if (!request) return '';
    const blocks = request.table.length ? `, ${request.table.length} blocks` : '';
    const cached = request.cached ? `, ${request.cached} of them from the tree` : '';
    return `${names.of(id).letter} (${id}): ${request.status}, ${request.prompt} prompt tokens${cached}, `
      + `${request.output} drawn${blocks}.`;
  }

  function draw() {
    const { state } = store;
    controls.draw();
    tiles.draw();
    const sentence = tell(state, (id) => names.of(id).letter);
    if (said.textContent !== sentence) {
      setText(said, sentence);
      letScroll(said); // its place is as high whatever it says
    }
    for (const { view, note } of views) {
      view.draw();
      setText(note, view.note?.(state) ?? '');
    }
    const block = views.map(({ view }) => view.describe?.(state)).find(Boolean);
    setText(pointed, block ?? (ctx.focus.request ? describeRequest(ctx.focus.request) : ''));
    root.dataset.step = String(state.n);
  }

  function begin(source) {
    controls.stop();
    names = new Names();
    store.reset({});
    return read(source);
  }

  function read(source) {
    reading?.abort();
    reading = new AbortController();
    const { signal } = reading;
    ctx.source = source;
    controls.say('');
    controls.hold(null);
    return source.read((record) => {
      if (signal.aborted) return;
      if (record.kind === 'pace') controls.hold(record.held);
      names.see(record);
      store.push(record);
    }, (words) => {
      if (signal.aborted) return;
      root.dataset.connection = words;
      controls.say(source.kind === 'live' && words === 'connected' ? '' : `${source.name}: ${words}`);
    }, signal).then(() => {
      if (source.kind === 'recording' && !signal.aborted) store.seek(0);
    });
  }

  async function open(text, name = 'recording') {
    try {
      await begin(recordingSource(text, name));
    } catch (error) {
      controls.say(`${name}: ${error.message}`);
    }
  }

  store.subscribe(ctx.redraw);
  new ResizeObserver(ctx.redraw).observe(root);
  root.addEventListener('keydown', controls.key);
  root.addEventListener('dragover', (event) => event.preventDefault());
  root.addEventListener('drop', async (event) => {
    event.preventDefault();
    const [file] = event.dataTransfer.files;
    if (file) open(await file.text(), file.name);
  });
  if (live) begin(live);
  ctx.redraw();
  return {
    store, open, draw,
    /** Go to the record at `index` and stay there. */
    go: controls.move,
    play: controls.play,
    /** Stop reading, so that the engine need not record for this page; what is there stays. */
    disconnect() {
      if (ctx.source?.kind === 'live') reading?.abort();
    },
    /** Read on, where `disconnect` had stopped. */
    connect() {
      if (ctx.source?.kind === 'live' && reading?.signal.aborted) read(live);
    },
    unmount() {
      reading?.abort();
      controls.stop();
      ended.abort();
      element.replaceChildren();
    },
  };
}
