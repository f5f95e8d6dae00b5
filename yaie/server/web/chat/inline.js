// Emphasis, code and links within a line of Markdown, as DOM nodes. Text stays text: nothing here parses HTML.

import { html } from '../xray/dom.js';

const RULES = [
  { find: /`+/y, make: code },
  { find: /\\([\\`*_{}[\]()#+\-.!~|>])/y, make: (match) => ({ nodes: [match[1]], end: match.index + match[0].length }) },
  { find: /!?\[([^[\]\n]*)\]\(\s*<?([^\s<>()]*(?:\([^\s()]*\)[^\s<>()]*)*)>?(?:\s+"[^"]*")?\s*\)/y, make: link },
  { find: /https?:\/\/[^\s<>()"'`]*[^\s<>()"'`.,;:!?*_]/y, make: (match) => ({
    nodes: [anchor(match[0], [match[0]])], end: match.index + match[0].length }) },
  { find: /(\*\*|__)(?=\S)([^\n]*?\S)\1/y, make: wrapped('strong') },
  { find: /(~~)(?=\S)([^\n]*?\S)\1/y, make: wrapped('del') },
  { find: /(\*)(?=[^\s*])([^\n*]*?[^\s*])\1/y, make: wrapped('em') },
  { find: /(_)(?=[^\s_])([^\n_]*?[^\s_])\1(?![A-Za-z0-9])/y, make: wrapped('em') },
];

/** Only addresses of the web: no script, no file, no data. */
function isSafe(address) {
  try {
    return ['http:', 'https:'].includes(new URL(address).protocol);
  } catch {
    return false;
  }
}

function anchor(address, nodes) {
  return html('a', { href: address, rel: 'noopener noreferrer nofollow', target: '_blank' }, nodes);
}

function code(match, text) {
  const begin = match.index + match[0].length;
  const close = text.indexOf(match[0], begin);
  if (close < 0) return null;
  return { nodes: [html('code', {}, text.slice(begin, close).trim())], end: close + match[0].length };
}

/** A link, or what was written where the address is none of the web. An image is a link: the page loads nothing. */
function link(match) {
  const end = match.index + match[0].length;
  if (!isSafe(match[2])) return { nodes: [match[0]], end };
  return { nodes: [anchor(match[2], [match[1] || match[2]])], end };
}

function wrapped(tag) {
  return (match, text) => {
    // In the middle of a word an underscore is part of it.
    if (match[1].startsWith('_') && /[A-Za-z0-9]/.test(text[match.index - 1] ?? '')) return null;
    return { nodes: [html(tag, {}, inline(match[2]))], end: match.index + match[0].length };
  };
}

function matchAt(text, at) {
  for (const { find, make } of RULES) {
    find.lastIndex = at;
    const match = find.exec(text);
    const made = match && make(match, text);
    if (made) return made;
  }
  return null;
}

/** @param {string} text @returns {Array<string|Node>} */
export function inline(text) {
  const nodes = [];
  let plain = '';
  for (let at = 0; at < text.length;) {
    const made = /[`\\![h*_~]/.test(text[at]) ? matchAt(text, at) : null;
    if (made) {
      nodes.push(plain, ...made.nodes);
      plain = '';
      at = made.end;
    } else {
      plain += text[at];
      at += 1;
    }
  }
  return [...nodes, plain].filter((node) => node !== '');
}
