// Markdown as DOM nodes: what models write of it. HTML in it is text, as everything that is not known here.

import { html } from '../xray/dom.js';
import { inline } from './inline.js';

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?:\s+(.*))?$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const DEEPEST = 12;

const cells = (line) => line.trim().replace(/^\||\|$/g, '').split('|').map((cell) => cell.trim());
const isTable = (lines, at) => lines[at].includes('|') && lines[at + 1]?.includes('-') && DIVIDER.test(lines[at + 1])
  && cells(lines[at]).length === cells(lines[at + 1]).length;
const begins = (lines, at) => [FENCE, HEADING, RULE, ITEM, QUOTE].some((kind) => kind.test(lines[at])) || isTable(lines, at);

function fence(lines, at) {
  const [, mark, language] = lines[at].match(FENCE);
  const close = lines.findIndex((line, index) => index > at && line.trim().startsWith(mark));
  const end = close < 0 ? lines.length : close; // still being written
  return [html('pre', { tabindex: 0, 'aria-label': language ? `Code: ${language}` : 'Code', role: 'group',
    'data-language': language || null },
    html('code', {}, lines.slice(at + 1, end).join('\n'))), end + 1];
}

function table(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes('|')) end += 1;
  const row = (line, tag) => html('tr', {}, cells(line).map((cell) => html(tag, {}, inline(cell))));
  return [html('div', { class: 'c-table', tabindex: 0, role: 'group', 'aria-label': 'Table' }, html('table', {}, html('thead', {}, row(lines[at], 'th')),
    html('tbody', {}, lines.slice(at + 2, end).map((line) => row(line, 'td'))))), end];
}

function quote(lines, at, depth) {
  let end = at;
  const inner = [];
  while (end < lines.length && QUOTE.test(lines[end])) inner.push(lines[end++].match(QUOTE)[1]);
  return [html('blockquote', {}, blocks(inner, depth + 1)), end];
}

function list(lines, at, depth) {
  const [, indent, mark] = lines[at].match(ITEM);
  const isOrdered = /\d/.test(mark);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const item = lines[end].match(ITEM);
    if (!item || item[1].length !== indent.length || /\d/.test(item[2]) !== isOrdered) break;
    const inner = [item[3] ?? ''];
    end += 1;
    while (end < lines.length && belongs(lines, end, indent.length)) inner.push(lines[end++].replace(/^( {1,4}|\t)/, ''));
    while (inner.length > 1 && !inner.at(-1).trim()) inner.pop();
    items.push(html('li', {}, tight(blocks(inner, depth + 1))));
  }
  const start = isOrdered ? Number.parseInt(mark, 10) : 1;
  return [html(isOrdered ? 'ol' : 'ul', start === 1 ? {} : { start }, items), end];
}

/** Whether a line goes on with the item above it. */
function belongs(lines, at, indent) {
  const line = lines[at];
  const deep = line.search(/\S/);
  if (deep < 0) return at + 1 < lines.length && (lines[at + 1].search(/\S/) > indent || belongsToList(lines[at + 1], indent));
  if (deep > indent) return true;
  return !begins(lines, at) && Boolean(lines[at - 1].trim());
}

const belongsToList = (line, indent) => line.match(ITEM)?.[1].length === indent;

/** An item of a single paragraph holds its words themselves. */
function tight(nodes) {
  return nodes.flatMap((node, index) => (index === 0 && node.tagName === 'P' ? [...node.childNodes] : [node]));
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !begins(lines, end)) end += 1;
  // Lines stay lines, and keep their indentation: models write poems, addresses and code without a fence. CSS shows both.
  const nodes = lines.slice(at, end).flatMap((line, index) => {
    const words = inline(line.trimEnd().replace(at + index + 1 < end ? /\\$/ : /$^/, ''));
    return index ? ['\n', ...words] : words;
  });
  return [html('p', {}, nodes), end];
}

function block(lines, at, depth) {
  const line = lines[at];
  if (depth > DEEPEST) return paragraph(lines, at);
  if (FENCE.test(line)) return fence(lines, at);
  if (HEADING.test(line)) {
    const [, marks, words] = line.match(HEADING);
    // The page has its own h1 and h2.
    return [html(`h${Math.min(6, marks.length + 2)}`, {}, inline(words)), at + 1];
  }
  if (RULE.test(line)) return [html('hr'), at + 1];
  if (ITEM.test(line)) return list(lines, at, depth);
  if (QUOTE.test(line)) return quote(lines, at, depth);
  if (isTable(lines, at)) return table(lines, at);
  return paragraph(lines, at);
}

function blocks(lines, depth) {
  const nodes = [];
  for (let at = 0; at < lines.length;) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const [node, end] = block(lines, at, depth);
    nodes.push(node);
    at = end;
  }
  return nodes;
}

/** @param {string} text @returns {Node[]} */
export const markdown = (text) => blocks(text.replace(/\r\n?/g, '\n').split('\n'), 0);
