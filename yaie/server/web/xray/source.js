// Where records come from: an engine's event stream, or a recording. What is drawn does not know which.

import { parse } from './recording.js';

/**
 * @typedef {object} Source
 * @property {'live' | 'recording'} kind
 * @property {string} name
 * @property {(take: (record: object) => void, say: (state: string) => void, signal: AbortSignal) => Promise<void>} read
 *   hands every record to `take`, and says how the connection stands
 * @property {boolean} [canPace] whether the page may have the engine wait for each step
 * @property {() => Promise<void>} [step] let the engine compute one step
 * @property {() => Promise<void>} [pause]
 * @property {() => Promise<void>} [resume]
 */

/** The data of each complete event in `text`, and what is left of an unfinished one. */
export function eventsIn(text) {
  const parts = text.split(/\r?\n\r?\n/);
  const rest = parts.pop();
  const events = parts.map((part) => part.split(/\r?\n/)
    .filter((line) => line.startsWith('data:'))
    .map((line) => line.slice(5).trimStart())
    .join('\n'));
  return { events: events.filter((data) => data && data !== '[DONE]'), rest };
}

const later = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
});

/**
 * The engine behind a server. Reads until it is aborted, and connects again when the stream ends.
 * @param {(path: string, init?: RequestInit) => Promise<Response>} send `fetch`, with the key where one is set
 * @returns {Source}
 */
export function liveSource(send = (path, init) => fetch(path, init), base = '') {
  const post = async (what) => {
    const answer = await send(`${base}/watch/${what}`, { method: 'POST' });
    if (!answer.ok) throw new Error(`The engine did not ${what}: HTTP ${answer.status}.`);
  };
  async function readOnce(take, say, signal) {
    const answer = await send(`${base}/watch/events?every=true`, { signal, headers: { Accept: 'text/event-stream' } });
    if (!answer.ok) {
      const told = await answer.json().catch(() => null);
      throw new Error(told?.error?.message ?? `HTTP ${answer.status}`);
    }
    source.canPace = answer.headers.get('X-Step-Mode') === 'offered';
    say('connected');
    const decoder = new TextDecoder();
    const reader = answer.body.getReader();
    let text = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const found = eventsIn(text + decoder.decode(value, { stream: true }));
      text = found.rest;
      for (const data of found.events) take(JSON.parse(data));
    }
  }
  const source = {
    kind: 'live',
    name: 'this engine',
    canPace: false,
    async read(take, say, signal) {
      for (let wait = 500; !signal.aborted; wait = Math.min(8000, wait * 2)) {
        const began = Date.now();
        try {
          await readOnce(take, say, signal);
        } catch (error) {
          if (signal.aborted) return;
          say(`not connected (${error.message})`);
        }
        if (Date.now() - began > 10_000) wait = 250;
        if (!signal.aborted) {
          say('connecting again');
          await later(wait, signal);
        }
      }
    },
    step: () => post('step'),
    pause: () => post('pause'),
    resume: () => post('resume'),
  };
  return source;
}

/** A recording's text. @returns {Source} */
export function recordingSource(text, name = 'a recording') {
  const records = parse(text);
  return {
    kind: 'recording',
    name,
    async read(take, say) {
      records.forEach(take);
      say('opened');
    },
  };
}
