// Asks the API for an answer, and adds its tokens to a turn as they come.

import { eventsIn } from '../xray/source.js';
import { prefixOf } from './conversation.js';
import { Stopwatch } from './speed.js';

const HOLDERS = {
  context_length_exceeded: { name: 'context', size: /maximum context length is (\d+)/, flag: '--max-model-len' },
  kv_pool_too_small: { name: 'KV pool', size: /KV pool holds (\d+)/, flag: '--num-blocks' },
};

/** An error of the API as it is told. @param {Response} answer one that is not 200 */
async function errorOf(answer) {
  try {
    const { error } = await answer.json();
    return { message: error.message, code: error.code };
  } catch {
    return { message: `The server answered ${answer.status} ${answer.statusText}.` };
  }
}

/** In words, with what to do where a conversation has become too long. */
function said({ message, code }) {
  const holder = HOLDERS[code];
  const size = holder && message.match(holder.size)?.[1];
  if (!size) return message;
  return `The conversation fills the ${holder.name} of ${Number(size).toLocaleString('en')} tokens. Begin another one with `
    + `+ New, or serve the model with a larger ${holder.flag}, if it was made for that.`;
}

/** What an answer that is not 200 says, in words. @param {Response} answer */
export const wordsOf = async (answer) => said(await errorOf(answer));

/**
 * A body that asks for no more tokens than there is room for; null where there is room for none. max_tokens is a
 * maximum, but the API refuses more than fits.
 */
function lowered(body, { message, code }) {
  const size = Number(HOLDERS[code] && message.match(HOLDERS[code].size)?.[1]);
  if (!size || !body.max_tokens) return null;
  const { max_tokens: wanted, ...rest } = body;
  if (!body.prompt) return rest; // a chat's answer is as long as fits
  const room = size - body.prompt.length;
  return room > 0 && room < wanted ? { ...rest, max_tokens: room } : null;
}

/** What went wrong with a request, in words. */
export function inWords(error) {
  return error instanceof TypeError ? 'The server cannot be reached. Does it still run?' : error.message;
}

const sampling = ({ temperature, top_p, top_k, min_p }) => ({ temperature, top_p, top_k, min_p });

/**
 * The request for a turn: a conversation, or tokens to go on from, which need the prompt's.
 * @returns {{path: string, body: object}}
 */
export function requestFor(conversation, turn, settings) {
  if (!turn.given) {
    return { path: '/v1/chat/completions', body: {
      messages: conversation.messages(turn.parent), ...sampling(settings), max_tokens: settings.max_tokens } };
  }
  return { path: '/v1/completions', body: {
    prompt: prefixOf(turn, turn.given), ...sampling(settings),
    max_tokens: Math.max(1, settings.max_tokens - turn.given) } };
}

/** A chunk of either API. */
function read(chunk) {
  const choice = chunk.choices?.[0];
  if (!choice) return null;
  const told = choice.logprobs?.content;
  return {
    prompt: chunk.prompt_token_ids ?? null,
    ids: choice.token_ids ?? [],
    text: choice.delta ? `${choice.delta.reasoning_content ?? ''}${choice.delta.content ?? ''}` : choice.text ?? '',
    pieces: told ? told.map(({ token }) => token) : choice.logprobs?.tokens ?? [],
    logprobs: told ? told.map(({ logprob }) => logprob) : choice.logprobs?.token_logprobs ?? [],
    reason: choice.finish_reason,
  };
}

/**
 * Ids and the text of a chunk as tokens. Where the pieces do not make up the text (a character of several tokens),
 * the last one carries all of it.
 */
export function tokensOf({ ids, text, pieces, logprobs }) {
  const fits = pieces.length === ids.length && pieces.join('') === text;
  return ids.map((id, index) => ({
    id, logprob: logprobs[index] ?? null,
    text: fits ? pieces[index] : index === ids.length - 1 ? text : '',
  }));
}

/**
 * Fills a turn until its answer ends, however it ends.
 * @param {(path: string, init: RequestInit) => Promise<Response>} send
 * @param {import('./conversation.js').Turn} turn with `request`
 * @param {() => void} changed called whenever there is more
 */
export async function fill(send, turn, changed) {
  const { path, body: { max_tokens: wanted } } = turn.request;
  const watch = new Stopwatch();
  turn.wanted = wanted;
  const more = path.endsWith('/chat/completions') ? { logprobs: true, separate_reasoning: false } : { logprobs: 0 };
  try {
    const post = () => {
      watch.start();
      return send(path, {
        method: 'POST', signal: turn.abort.signal, headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ ...turn.request.body, stream: true, stream_options: { include_usage: true }, return_token_ids: true, ...more }),
      });
    };
    let answer = await post();
    if (!answer.ok) {
      const error = await errorOf(answer);
      const body = lowered(turn.request.body, error);
      if (!body) throw new Error(said(error));
      turn.request = { path, body };
      answer = await post();
      if (!answer.ok) throw new Error(await wordsOf(answer));
    }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ''; ;) {
      const { done, value } = await reader.read();
      if (done) break;
      const at = performance.now();
      const found = eventsIn(rest + value);
      rest = found.rest;
      for (const data of found.events) take(turn, JSON.parse(data), watch, at);
      changed();
    }
    if (turn.state === 'streaming') throw new Error('The answer broke off: the server closed the connection.');
  } catch (error) {
    if (turn.abort.signal.aborted) turn.state = 'stopped';
    else Object.assign(turn, { state: 'failed', error: inWords(error) });
  }
  turn.speed = watch.speed();
  changed();
}

function take(turn, chunk, watch, at) {
  if (chunk.error) throw new Error(chunk.error.message);
  if (chunk.model) turn.model = chunk.model;
  if (chunk.usage) watch.counted(chunk.usage.completion_tokens);
  const part = read(chunk);
  if (!part) return;
  turn.prompt ??= part.prompt;
  turn.tokens.push(...tokensOf(part));
  watch.came(part.ids.length, at);
  if (part.reason) Object.assign(turn, { state: 'done', reason: part.reason });
}
