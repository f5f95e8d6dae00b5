// A conversation as a text that storage keeps, and back. What is read may be anybody's: another program's on the same
// origin, or another version's. It is looked at piece by piece, and nothing of it is markup.

import { Conversation } from './conversation.js';

const VERSION = 1;
const STATES = ['done', 'stopped', 'failed'];

const isText = (value) => typeof value === 'string';
const isCount = (value) => Number.isInteger(value) && value >= 0;
const isNumber = (value) => Number.isFinite(value) && value >= 0;
const orNull = (holds) => (value) => value === null || holds(value);

/** Four digits are enough for a probability that is shown with three. */
const short = (logprob) => (logprob === null ? null : Math.max(-1e6, Number(logprob.toPrecision(4))));

function asPlain(turn, parent) {
  const { role, chosen, text, tokens, given, state, reason, error, model, speed, settings, wanted } = turn;
  if (role === 'user') return { parent, chosen, text };
  return { parent, chosen, tokens: tokens.map((token) => [token.id, token.text, short(token.logprob)]), given,
    state: state === 'streaming' ? 'stopped' : state, // nobody will go on with it
    reason, error, model: model ?? null, speed: speed ?? null, settings, wanted };
}

/** @param {Conversation} conversation @returns {string} without the prompts' ids, which the server says again */
export function written(conversation) {
  const { turns, root, name, system, draft } = conversation;
  const numbers = new Map(turns.map((turn, index) => [turn, index]));
  return JSON.stringify({ version: VERSION, name, system, draft, chosen: root.chosen,
    turns: turns.map((turn) => asPlain(turn, numbers.get(turn.parent) ?? null)) });
}

function require(...all) {
  if (!all.every(Boolean)) throw new TypeError('This is no conversation of this page.');
}

function readAnswer(plain) {
  const { tokens, given, state, reason, error, model, speed, settings, wanted } = plain;
  require(Array.isArray(tokens), isCount(given) && given <= tokens.length, STATES.includes(state), orNull(isText)(reason),
    orNull(isText)(error), orNull(isText)(model), isCount(wanted),
    settings && Object.values(settings).every(Number.isFinite),
    speed === null || (isNumber(speed.first) && orNull(isNumber)(speed.rate)));
  return { given, state, reason, error, model, speed, settings, wanted, prompt: null,
    tokens: tokens.map(([id, text, logprob]) => {
      require(isCount(id), isText(text), orNull(Number.isFinite)(logprob));
      return { id, text, logprob };
    }) };
}

/** @param {string} id @param {string} text @returns {?Conversation} null where it is none */
export function read(id, text) {
  try {
    const { version, name, system, draft, chosen, turns } = JSON.parse(text);
    require(version === VERSION, [name, system, draft].every(isText), isCount(chosen), Array.isArray(turns));
    const conversation = new Conversation(id);
    Object.assign(conversation, { name, system, draft });
    const made = [];
    for (const plain of turns) {
      const parent = plain.parent === null ? conversation.root : made[plain.parent];
      const isUser = 'text' in plain;
      require(parent, isCount(plain.chosen), isUser ? isText(plain.text) : true,
        isUser === (parent.role !== 'user')); // they take turns
      made.push(isUser ? conversation.add(parent, 'user', { text: plain.text })
        : conversation.add(parent, 'assistant', { ...readAnswer(plain), abort: new AbortController() }));
    }
    [{ chosen }, ...turns].forEach((plain, index) => {
      const turn = index ? made[index - 1] : conversation.root;
      turn.chosen = Math.min(plain.chosen, Math.max(0, turn.children.length - 1));
    });
    return conversation;
  } catch {
    return null;
  }
}
