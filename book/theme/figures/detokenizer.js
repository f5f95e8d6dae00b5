// A detokenizer's window over tokens that the reader types, and what a stop string holds back: a port of the reference
// (solutions/engine), which a test holds against it.
'use strict';

const detokenizer = (() => {
  const INCOMPLETE = '\uFFFD';
  const [LONGEST_CHARACTER, LONGEST_WINDOW, SHORTEST_WINDOW] = [4, 16, 12];
  const MOST = 28; // tokens of a text
  const utf8 = (text) => [...new TextEncoder().encode(text)];

  // A token is { byte } or { text }, the text with the space in front of it.
  const WAYS = {
    /** Bytes of all tokens in a row; what is no character yet, or never, is one U+FFFD. */
    level: (tokens) => new TextDecoder('utf-8', { ignoreBOM: true }).decode(
      new Uint8Array(tokens.flatMap(({ byte, text }) => (text === undefined ? [byte] : utf8(text))))),

    /** A run of bytes is decoded whole, or each of its bytes is a U+FFFD; the first space of all is left out. */
    fallback(tokens) {
      let [text, run] = ['', []];
      const end = () => {
        try {
          text += new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(new Uint8Array(run));
        } catch { text += INCOMPLETE.repeat(run.length); }
        run = [];
      };
      for (const token of tokens) {
        if (token.text === undefined) run.push(token.byte);
        else { end(); text += token.text; }
      }
      end();
      return text.startsWith(' ') ? text.slice(1) : text;
    },
  };

  /** Tokens of a text: a word of plain letters with its space, any other ASCII character, or a byte. \n is a new line
   *  and \xE2 a byte by itself. */
  function cut(typed, way) {
    const tokens = [], byte = (value) => ({ byte: value });
    for (const [piece, hex] of `${way === 'fallback' && typed ? ' ' : ''}${typed}`.matchAll(/\\x([0-9a-f]{2})|\\n| ?[a-z]+|[^]/giu)) {
      const text = piece === '\\n' ? '\n' : piece;
      if (hex) tokens.push(byte(parseInt(hex, 16)));
      else if (/[^\0-\x7f]/.test(text) || (text === '\n' && way === 'fallback')) tokens.push(...utf8(text).map(byte));
      else tokens.push({ text });
    }
    return tokens.slice(0, MOST);
  }

  /** How many characters at the end may be the first bytes of one that is not complete yet. */
  const undecidedOf = (text) => Math.min(text.match(/\uFFFD*$/)[0].length, LONGEST_CHARACTER - 1);

  class Detokenizer {
    constructor(decode) {
      Object.assign(this, { decode, tokens: [], start: 0, shown: 0, shownText: '' });
    }

    /** The text that this token makes final. this.seen: the window as it was decoded for that. */
    push(token) {
      const window = () => this.decode(this.tokens.slice(this.start));
      this.tokens.push(token);
      let text = window();
      const broken = text.startsWith(this.shownText) ? null : { text, shown: this.shownText };
      if (broken) {
        [this.start, this.shownText] = [this.shown, ''];
        text = window();
      }
      const undecided = undecidedOf(text), context = this.shownText;
      const fresh = text.slice(context.length, text.length - undecided);
      if (fresh && !undecided) {
        [this.start, this.shown] = [this.shown, this.tokens.length];
        this.shownText = window();
      } else if (text && !this.decode([token])) this.tokens.pop();
      else if (this.tokens.length - this.start > LONGEST_WINDOW) {
        this.start = this.shown = this.tokens.length - SHORTEST_WINDOW;
        const kept = window();
        this.shownText = kept.slice(0, kept.length - undecided);
      } else this.shownText += fresh;
      this.seen = { text, context, fresh, broken };
      return fresh;
    }

    flush() {
      const text = this.decode(this.tokens.slice(this.start)), context = this.shownText, fresh = text.slice(context.length);
      this.start = this.shown = this.tokens.length;
      this.shownText = '';
      this.seen = { text, context, fresh, broken: null };
      return fresh;
    }
  }

  class StopChecker {
    constructor(stops) { Object.assign(this, { stops, held: '' }); }

    /** [text that is safe to show, the stop string that was found or null] */
    push(text) {
      if (!this.stops.length) return [text, null];
      const all = this.held + text;
      const found = this.stops.map((stop) => ({ stop, at: all.indexOf(stop) })).filter(({ at }) => at >= 0)
        .sort((a, b) => a.at + a.stop.length - b.at - b.stop.length || a.at - b.at)[0];
      if (found) {
        this.held = '';
        return [all.slice(0, found.at), found.stop];
      }
      const safe = all.length - this.undecided(all);
      this.held = all.slice(safe);
      return [all.slice(0, safe), null];
    }

    /** Length of the longest end of `text` that is the start of a stop string. */
    undecided(text) {
      let length = Math.min(text.length, Math.max(...this.stops.map((stop) => stop.length)) - 1);
      while (length > 0 && !this.stops.some((stop) => stop.startsWith(text.slice(-length)))) length -= 1;
      return length;
    }

    flush() {
      const { held } = this;
      this.held = '';
      return held;
    }
  }

  /** What happens with each token, and at the end: { tokens, states }. A stop string that is found is the end. */
  function stream(tokens, stops, way) {
    const text = new Detokenizer(WAYS[way]), checker = new StopChecker(stops.filter(Boolean)), states = [];
    let sent = '';
    const note = (at, fresh, [safe, found], isEnd) => {
      const more = safe + (isEnd && !found ? checker.flush() : '');
      sent += more;
      const { start, shown, seen } = text;
      states.push({ at, start, shown, ...seen, fresh, more, sent, held: checker.held, found, isEnd });
      return found;
    };
    for (const [index, token] of tokens.entries()) {
      const fresh = text.push(token);
      if (note(index + 1, fresh, checker.push(fresh), false)) return { tokens, states };
    }
    const last = text.flush();
    note(tokens.length, last, checker.push(last), true);
    return { tokens, states };
  }

  return { WAYS, MOST, cut, undecidedOf, stream, Detokenizer, StopChecker };
})();

(() => {
  const { svg, html } = yaie;
  const { room, picture, text, legend } = yaie.stage;
  const { hatching } = yaie.timeline;
  const STYLE = `
    figure.moving .stage table.yd { width: 100%; border-collapse: collapse; font-size: 13px; margin-top: 0.4em; }
    figure.moving .stage .yd tr { background: none; border: 0; }
    .yd th, .yd td { border: 0; padding: 3px 6px; background: none; text-align: left; vertical-align: baseline; }
    .yd th { font-weight: 600; width: 11em; }
    .yd td { font-family: var(--mono-font); font-size: 15px; line-height: 1.4; overflow-wrap: anywhere; }
    .yd td:not(:has(span, b)) { font-family: inherit; font-size: inherit; opacity: 0.85; }
    .yd span, .yd b { padding: 2px 0; }
    .yd .yd-context { background: var(--y-blue-soft); }
    .yd .yd-held { border: 1px solid var(--y-orange); background: repeating-linear-gradient(135deg, var(--y-orange-soft) 0 4px, transparent 4px 8px); }
    @media (max-width: 480px) { .yd th { width: 9.5em; } .yd th, .yd td { padding-inline: 2px; } }`;
  document.head.append(html('style', {}, STYLE));

  const [LEFT, CELL, ABOVE, BELOW] = [6, 26, 26, 32];
  const NAMES = { level: 'byte-level: Llama 3, Qwen, the tutor', fallback: 'byte fallback: Llama 2, Mistral, Gemma' };
  const visible = (words) => words.replaceAll(' ', '␣').replaceAll('\n', '↵');
  const quoted = (words) => `“${visible(words)}”`;
  const hex = (value) => value.toString(16).toUpperCase().padStart(2, '0');
  const labelOf = (token) => (token.text === undefined ? hex(token.byte) : visible(token.text));
  const named = (token) => (token.text === undefined ? `the byte ${hex(token.byte)}` : `“${visible(token.text)}”`);

  function told(state, tokens) {
    if (!tokens.length) return 'No text, no tokens. Type some.';
    const { text: decoded, fresh, broken, held, more, found, isEnd, at } = state;
    const checker = found ? ` The stop string ${quoted(found)} is complete: the answer ends before it.`
      : held ? ` The stop checker holds ${quoted(held)}, which may become a stop string.`
        : more === fresh ? '' : ` The stop checker lets ${quoted(more)} go.`;
    if (isEnd) {
      const last = fresh ? `The detokenizer returns ${quoted(fresh)}, since no byte follows.` : 'The detokenizer holds nothing.';
      return `No more tokens. ${last}${checker || ' All is sent.'}`;
    }
    const came = `After ${named(tokens[at - 1])}, ${at === 1 ? 'the first token' : `token ${at}`}, `;
    const run = broken ? `the window decodes to ${quoted(broken.text)}, which no longer begins with ${quoted(broken.shown)}. So _start moves past that, and the rest is ${quoted(decoded)}: `
      : `the window decodes to ${quoted(decoded)}: `;
    const waits = detokenizer.undecidedOf(decoded);
    const returned = fresh ? `${quoted(fresh)} is returned${waits ? ', and the rest waits' : ''}.`
      : waits ? `nothing is returned, since ${waits > 1 ? `${waits} � may` : 'the � may'} still become a character.` : 'nothing new.';
    return came + run + returned + checker;
  }

  /** Where each token is: cells in lines that fit the stage. */
  function places(tokens, width) {
    let [x, y] = [LEFT, ABOVE];
    return tokens.map((token) => {
      const wide = Math.max(32, 12 + 7.9 * labelOf(token).length);
      if (x > LEFT && x + wide > width - LEFT) [x, y] = [LEFT, y + CELL + ABOVE + BELOW];
      const place = { x, y, wide };
      x += wide + 3;
      return place;
    });
  }

  function cells(tokens, where, { start, shown, at, found }) {
    return tokens.map((token, index) => {
      const { x, y, wide } = where[index];
      const kind = index >= at ? 'none' : index >= shown ? 'held' : index >= start ? 'context' : 'gone';
      const look = {
        none: { fill: 'none', stroke: 'var(--y-line)', 'stroke-dasharray': '2 4' },
        held: { fill: 'var(--y-orange-soft)', stroke: 'var(--y-orange)', 'stroke-width': 2 },
        context: { fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)', 'stroke-width': 2 },
        gone: { fill: 'none', stroke: 'var(--y-line)' },
      }[kind];
      return svg('g', { 'data-key': `token-${index}`, 'data-thing': kind },
        svg('rect', { x, y, width: wide, height: CELL, rx: 3, ...look }),
        kind === 'held' ? hatching(x, y, wide, CELL, 7) : null,
        text(x + wide / 2, y + 18, labelOf(token), { anchor: 'middle', bold: index === at - 1, opacity: kind === 'none' ? 0.75 : null,
          'text-decoration': kind === 'none' && found ? 'line-through' : null, ...(kind === 'held' ? { stroke: 'var(--y-orange-soft)', 'stroke-width': 5, 'paint-order': 'stroke' } : {}) }));
    });
  }

  /** A caret between two tokens: _shown points down from above, _start up from below. */
  function caret(name, index, where, width) {
    const last = where[index - 1], next = where[index];
    const { x, y } = next ? { x: next.x - 1.5, y: next.y } : { x: last.x + last.wide + 1.5, y: last.y };
    const isAbove = name === '_shown', tip = isAbove ? y - 1 : y + CELL + 1, way = isAbove ? -1 : 1;
    const middle = Math.max(LEFT + 22, Math.min(width - LEFT - 22, x));
    return svg('g', { 'data-key': name, 'data-thing': name.slice(1) },
      svg('path', { d: `M${x} ${tip}l-5 ${9 * way}h10z`, fill: isAbove ? 'var(--y-orange)' : 'var(--y-blue)' }),
      text(middle, isAbove ? tip - 13 : tip + 21, name, { anchor: 'middle', bold: true }));
  }

  function table({ text: decoded, context, fresh, held, sent }) {
    const part = (kind, words) => (words ? html('span', { class: `yd-${kind}` }, visible(words)) : null);
    const row = (name, thing, ...cell) => html('tr', { 'data-thing': thing }, html('th', { scope: 'row' }, name),
      html('td', {}, cell.some(Boolean) ? cell : 'nothing'));
    const rest = decoded.slice(context.length + fresh.length);
    return html('table', { class: 'yd' }, html('tbody', {},
      row('window decodes to', 'context', part('context', context), fresh ? html('b', {}, visible(fresh)) : null, part('held', rest)),
      row('detokenizer returns', 'returned', fresh ? html('b', {}, visible(fresh)) : null),
      row('stop checker holds', 'stop', part('held', held)),
      row('client has', 'client', sent ? html('span', {}, visible(sent)) : null)));
  }

  function settings(figure) {
    const field = (name, label, size, most) => {
      const input = html('input', { type: 'text', class: 'prompt', size, maxlength: most, value: figure.data[name], spellcheck: 'false', autocomplete: 'off' });
      input.oninput = () => change({ [name]: input.value }, name === 'text');
      return html('label', {}, label, input);
    };
    const way = html('select', {}, Object.entries(NAMES).map(([value, words]) => html('option', { value }, words)));
    way.value = figure.data.way;
    /** Typed text is shown as its last token leaves it; other changes, at the step that was shown. */
    const change = (values, isTyped) => {
      figure.used();
      figure.player.pause();
      const { made: _, ...data } = figure.data, typed = { ...data, ...values };
      figure.restart(typed, isTyped ? Math.max(0, detokenizer.cut(typed.text, typed.way).length - 1) : figure.index);
    };
    way.onchange = () => change({ way: way.value });
    return [field('text', 'Text', 12, 28), field('stop', 'Stop at', 5, 16), html('label', {}, 'Tokenizer', way)];
  }

  yaie.stepped('detokenizer', {
    settings,
    steps({ text: typed, stop, way }) {
      const { tokens, states } = detokenizer.stream(detokenizer.cut(typed, way), [stop.replaceAll('\\n', '\n')], way);
      return states.map((state) => ({ ...state, tokens, say: told(state, tokens),
        place: state.isEnd ? 'the end' : `token ${state.at} of ${tokens.length}` }));
    },
    draw(stage, step) {
      const { tokens } = step, width = room(stage), where = places(tokens, width);
      const high = (where.at(-1)?.y ?? ABOVE) + CELL + BELOW;
      stage.append(picture(width, high, `${tokens.length} tokens: ${tokens.map(labelOf).join(', ')}. ${step.at} have come; _start is before token ${step.start + 1}, `
          + `_shown before token ${step.shown + 1}.`,
        cells(tokens, where, step),
        tokens.length ? [caret('_shown', step.shown, where, width), caret('_start', step.start, where, width)] : null),
      table(step),
      legend([{ fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)', 'stroke-width': 2 }, 'shown, decoded again as context'],
        [{ fill: 'var(--y-orange-soft)', stroke: 'var(--y-orange)', 'stroke-width': 2 }, 'not shown yet (hatched)'],
        [{ fill: 'none', stroke: 'var(--y-line)', 'stroke-dasharray': '2 4' }, 'still to come']));
    },
  });
})();
