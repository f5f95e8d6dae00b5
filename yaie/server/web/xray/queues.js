// Who runs and who waits: a row for each request, with how far its tokens have K and V.

import { chip, keyed, lit } from './chips.js';
import { html, setText } from './dom.js';

const MOST = 24;
const percent = (part, whole) => `${whole ? Math.min(100, (100 * part) / whole) : 0}%`;

function makeRow(ctx, id) {
  const words = html('span', { class: 'x-words' });
  const bar = html('span', { class: `x-progress x-hue-${ctx.names.of(id).hue}` },
    html('i', { class: 'x-cached' }), html('i', { class: 'x-prompt' }), html('i', { class: 'x-output' }));
  const numbers = html('span', { class: 'x-numbers' });
  const row = html('li', { class: 'x-request', ...lit(ctx, { request: id, block: null }) },
    chip(ctx, id), html('span', { class: 'x-request-body' }, words, bar), numbers);
  return Object.assign(row, { words, bar, numbers });
}

function updateRow(ctx, row, request) {
  const { prompt, output, cached, computed, status, text, words, maxTokens, ttft, hostBlocks, priority, peek } = request;
  setText(row.words, peek ? '“Next token” looks ahead' : status === 'running' && text ? `…${text.slice(-90)}` : words.trim() || request.id);
  const whole = prompt + Math.max(output, maxTokens);
  const parts = [Math.min(cached, computed), Math.max(0, Math.min(computed, prompt) - cached), Math.max(0, computed - prompt)];
  parts.forEach((count, index) => { row.bar.children[index].style.width = percent(count, whole); });
  const wait = { preempted: 'preempted', swapped: `${hostBlocks} blocks on the host`, waiting: 'waits' }[status];
  const first = ttft == null ? '' : ` · first after ${Math.round(ttft * 1000)} ms`;
  const rank = priority ? `priority ${priority} · ` : '';
  setText(row.numbers, rank + (wait ? `${wait} · ${prompt + output} tokens` : `${prompt} + ${output}${first}`));
  row.dataset.status = status;
  row.dataset.lit = String(ctx.focus.request === request.id);
}

/** The panel. */
export function queuesView(ctx) {
  const list = (name) => html('ol', { class: 'x-list', 'aria-label': name });
  const running = list('Running requests'), waiting = list('Waiting requests');
  const heads = { running: html('h3'), waiting: html('h3') };
  const more = { running: html('p', { class: 'x-more' }), waiting: html('p', { class: 'x-more' }) };
  const draw = (element, ids) => keyed(element, ids, (id) => makeRow(ctx, id),
    (row, id) => updateRow(ctx, row, ctx.store.state.requests.get(id)));
  return {
    title: 'Queues', name: 'queues',
    body: [heads.running, running, more.running, heads.waiting, waiting, more.waiting],
    draw() {
      const { state } = ctx.store;
      const known = (ids) => ids.filter((id) => state.requests.has(id)).slice(0, MOST);
      const [run, wait] = [known(state.running), known(state.waiting)];
      draw(running, run);
      draw(waiting, wait);
      setText(heads.running, `Running ${state.running.length}`);
      setText(heads.waiting, `Waiting ${state.numWaiting}`);
      setText(more.running, state.running.length > run.length ? `and ${state.running.length - run.length} more` : '');
      setText(more.waiting, state.numWaiting > wait.length ? `and ${state.numWaiting - wait.length} more` : '');
    },
  };
}
