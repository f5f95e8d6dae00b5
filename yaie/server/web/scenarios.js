// Small loads that show what the X-ray is for. Each says what to look for, and afterwards what /metrics counted.

import { html, setText } from './xray/dom.js';
import { inWords, wordsOf } from './chat/stream.js';
import { eventsIn } from './xray/source.js';
import { counted, difference } from './scenario-metrics.js';
import { LOADS } from './scenario-loads.js';
import { stopOf } from './scenario-stops.js';

const ofFacts = (header) => ({
  numBlocks: header.num_blocks, blockSize: header.block_size, budget: header.token_budget,
  seats: header.max_num_seqs, policy: header.policy, caching: header.prefix_caching,
});

/**
 * Several requests over one connection: a browser opens six at most to a server, and the X-ray has one of them.
 * @param {{prompt: number[][], max_tokens: number}} body
 * @returns {Promise<number[]>} seconds to the first token of each
 */
async function ask(send, body, signal) {
  const began = performance.now();
  const answer = await send('/v1/completions', {
    method: 'POST', signal, headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ temperature: 0.8, ignore_eos: true, ...body, stream: true, return_token_ids: true }),
  });
  if (!answer.ok) throw new Error(await wordsOf(answer));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const first = [];
  for (let rest = ''; ;) {
    const { done, value } = await reader.read();
    if (done) return first;
    const found = eventsIn(rest + value);
    rest = found.rest;
    for (const chunk of found.events.map((data) => JSON.parse(data))) {
      if (chunk.error) throw new Error(chunk.error.message);
      const [choice] = chunk.choices;
      if (choice?.token_ids?.length) first[choice.index] ??= (performance.now() - began) / 1000;
    }
  }
}

/** The ids of a text as long as it takes: lines that differ, so that no two prompts share a block by chance. */
async function tokensOf(send, words, count) {
  let ids = [];
  for (let lines = Math.ceil(count / 6) + 4; ids.length < count; lines *= 2) {
    const text = Array.from({ length: lines }, (_, number) => `${words} ${number + 1}.`).join(' ');
    const answer = await send('/tokenize', {
      method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ prompt: text }) });
    if (!answer.ok) throw new Error(await wordsOf(answer));
    ids = (await answer.json()).tokens;
  }
  return ids.slice(0, count);
}

/**
 * @param {HTMLElement} element
 * @param {{send: Function, xray: {store: import('./xray/store.js').Store, go: (index: number) => void}}} page
 */
export function mountScenarios(element, { send, xray }) {
  const { store } = xray;
  const look = html('p', { class: 'n-look' });
  const seen = html('p', { class: 'n-seen', role: 'status' });
  const why = html('p', { class: 'n-why' });
  const running = { name: null, results: {}, abort: null };
  let longest = 0;

  const metrics = async () => counted(await (await send('/metrics')).text());
  const later = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
  const tools = { ask: (body) => ask(send, body, running.abort.signal), tokens: (words, count) => tokensOf(send, words, count), later };

  /** The counters of /metrics follow the engine; its last step's may not be told yet. */
  async function settled() {
    for (let turn = 0; turn < 50; turn += 1) {
      const now = await metrics();
      if (now.running === 0 && now.waiting === 0) return now;
      await later(100);
    }
    return metrics();
  }

  /** Goes where one sees it, since the end of a load shows nothing. @returns {string} that it did */
  function showStop(name, after) {
    const index = stopOf(name, store.records, after);
    if (index < 0) return '';
    xray.go(index);
    return ` The picture stands at step ${store.state.n}; Play returns to the engine.`;
  }

  async function start(load) {
    Object.assign(running, { name: load.name, abort: new AbortController() });
    setText(look, load.look);
    setText(seen, '');
    seen.dataset.failed = 'false';
    draw();
    try {
      store.follow();
      const after = store.head.n;
      const facts = { ...ofFacts(store.header), longest };
      const before = await metrics();
      const times = await load.run(tools, facts);
      const counts = difference(before, await settled());
      running.results[load.name] = counts;
      setText(seen, `Seen: ${load.tell(counts, times, facts)}${showStop(load.name, after)}`);
    } catch (error) {
      seen.dataset.failed = 'true';
      setText(seen, running.abort.signal.aborted ? 'Stopped: its requests are aborted.' : inWords(error));
    }
    running.name = null;
    draw();
  }

  const buttons = LOADS.map((load) => html('button', { type: 'button', 'data-load': load.name, 'aria-pressed': 'false',
    onclick: () => (running.name === load.name ? running.abort.abort() : start(load)) }, load.label));

  function draw() {
    const facts = { ...ofFacts(store.header), longest };
    const reasons = [];
    LOADS.forEach((load, index) => {
      const hinders = facts.numBlocks && longest ? load.hinders?.(facts) ?? null : 'The engine is not there yet.';
      buttons[index].disabled = Boolean(hinders) || (running.name !== null && running.name !== load.name);
      setText(buttons[index], running.name === load.name ? `Stop: ${load.label.toLowerCase()}` : load.label);
      buttons[index].setAttribute('aria-pressed', String(running.name === load.name));
      if (hinders && facts.numBlocks && longest) reasons.push(`${load.label}: ${hinders}`);
    });
    setText(why, reasons.join(' '));
  }

  send('/v1/models').then(async (answer) => {
    longest = (await answer.json()).data[0].max_model_len;
    draw();
  }).catch(() => {});
  let header = null;
  store.subscribe(() => {
    if (store.header === header) return;
    header = store.header;
    draw();
  });
  element.replaceChildren(html('section', { class: 'n-scenarios', 'aria-labelledby': 'n-title' },
    html('h2', { id: 'n-title' }, 'Scenarios'), html('div', { class: 'n-buttons' }, buttons), look, seen, why));
  draw();
  return running;
}
