// The whole game: requests and what they have still to compute, the pool of blocks, the radix tree, and all steps so
// far. A token is a square. It waits in its request's row, and once it is computed it lies in a slot of a block.
'use strict';

const wholeGame = (() => {
  const memo = new WeakMap(), past = new WeakMap();

  /** The state after each step of a track; a step names only what it changed. */
  function states(track) {
    if (memo.has(track)) return memo.get(track);
    const names = Object.keys(track.prompts);
    let last = { queue: [], done: [], tables: {}, tree: [], pool: Array.from({ length: track.num_blocks }, () => []), texts: {}, computed: {}, tokens: { ...track.prompts }, pieces: {} };
    const found = track.steps.map((step) => {
      const pool = [...last.pool];
      for (const [block, entry] of Object.entries(step.pool)) pool[block] = entry;
      const now = { ...last, ended: [], preempted: [], ...step, pool, pieces: {}, texts: { ...last.texts },
        computed: { ...last.computed }, tokens: { ...last.tokens } };
      for (const name of now.preempted) now.computed[name] = 0;
      for (const [name, start, count, text] of step.rows) {
        now.computed[name] = start + count;
        if (now.computed[name] < now.tokens[name]) continue;
        now.tokens[name] += 1;
        now.texts[name] = (now.texts[name] ?? '') + text;
        now.pieces[name] = text;
      }
      now.order = [...names.filter((name) => !now.done.includes(name) && !now.queue.includes(name)), ...now.queue, ...now.done];
      last = now;
      return now;
    });
    memo.set(track, found);
    return found;
  }

  /** [from, to, kind] of each run of steps up to `index` in which a request did the same. */
  function runs(track, name, index) {
    if (!past.has(track)) past.set(track, Object.fromEntries(Object.keys(track.prompts).map((each) => [each, allRuns(track, each)])));
    return past.get(track)[name].filter(([from]) => from < index).map(([from, to, kind]) => [from, Math.min(to, index), kind]);
  }

  function allRuns(track, name) {
    const found = [];
    states(track).slice(1).forEach((state, at) => {
      const row = state.rows.find(([who]) => who === name);
      const isPrompt = row && (row[2] > 1 || row[1] < track.prompts[name]);
      const kind = isPrompt ? 'prefill' : row ? 'decode' : state.queue.includes(name) ? 'wait' : null;
      const latest = found.at(-1);
      if (latest?.[2] === kind && latest[1] === at) latest[1] = at + 1;
      else if (kind) found.push([at, at + 1, kind]);
    });
    return found;
  }

  /** How many steps it takes to get these tokens one request after the other: one for each. */
  const alone = (track, index) => states(track).slice(0, index + 1).reduce((sum, { pieces }) => sum + Object.keys(pieces).length, 0);

  return { states, runs, alone };
})();

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, lines } = yaie.stage;
  const COLOURS = { A: 'blue', B: 'orange', C: 'green', D: 'purple' };
  const TOP = 24, CHAR = 7.3;
  const ink = (name) => `var(--y-${COLOURS[name]})`, paper = (name) => `var(--y-${COLOURS[name]}-soft)`;

  const square = (name, index, x, y, side, extra = {}) => svg('rect', { x, y, width: side, height: side, rx: 1,
    fill: ink(name), stroke: 'none', 'data-key': `token-${name}-${index}`, ...extra });

  const box = ([x, y], side) => `M${x} ${y}h${side}v${side}h${-side}z`;

  /** Tokens [from, to) at their places, four to a shape: fewer things to move, and they stay together in a slot's row. */
  function squares(name, from, to, placeOf, side, extra = {}) {
    const found = [];
    for (let first = from - (from % 4); first < to; first += 4) {
      const mine = [0, 1, 2, 3].map((at) => first + at).filter((token) => token >= from && token < to);
      found.push(svg('path', { d: mine.map((token) => box(placeOf(token), side)).join(''), fill: ink(name), 'data-key': `token-${name}-${mine[0]}`, ...extra }));
    }
    return found;
  }

  function told(name, state, row, track) {
    if (state.done.includes(name)) return 'done';
    if (state.queue.includes(name)) return 'waits';
    if (!row) return 'waits';
    return row[2] > 1 || row[1] < track.prompts[name] ? `computes ${row[2]}` : 'computes 1';
  }

  /** A request: its question, what it does, and its answer or the tokens that it must compute first. */
  function request(name, y, width, high, state, track, next) {
    const row = state.rows.find(([who]) => who === name);
    const isDone = state.done.includes(name), waits = state.queue.includes(name);
    const missing = isDone ? 0 : state.tokens[name] - (state.computed[name] ?? 0);
    const [left, top] = [34, y + 16];
    const body = [];
    if (missing > 1) {
      const pitch = Math.min(9, (width - left - 8) / missing);
      // Those that the next step computes will move; the others are one shape.
      const first = state.computed[name] ?? 0, soon = next?.rows.find(([who]) => who === name);
      const [side, still] = [pitch - 1.5, []];
      for (let at = 0; at < missing; at += 1) {
        const x = left + at * pitch, index = first + at;
        if (!soon || index < soon[1] || index >= soon[1] + soon[2]) still.push(box([x, top + 8], side));
      }
      if (soon) body.push(...squares(name, soon[1], soon[1] + soon[2], (token) => [left + (token - first) * pitch, top + 8], side));
      body.push(svg('path', { d: still.join(''), fill: ink(name) }));
      body.push(text(left, top + 31, `${missing} tokens to compute`, { size: 12, 'data-key': `left-${name}` }));
    } else {
      const all = lines(state.texts[name] ?? '', width - left - 42);
      const shown = all.slice(-2);
      shown.forEach((words, at) => {
        const isLast = at === shown.length - 1 && !isDone && state.pieces[name];
        const piece = isLast ? state.pieces[name].trimStart() : '';
        const cut = isLast && words.endsWith(piece) ? words.length - piece.length : words.length;
        body.push(svg('text', { x: left, y: top + 16 + at * 15, style: 'font-size: 12px' },
          at === 0 && all.length > 2 ? `… ${words.slice(0, cut)}` : words.slice(0, cut),
          svg('tspan', { style: 'font-weight: 700', fill: ink(name) }, words.slice(cut))));
      });
      if (missing === 1) {
        const x = left + (shown.at(-1).length + 1) * CHAR;
        body.push(square(name, state.computed[name], Math.min(x, width - 18), top + 7 + (shown.length - 1) * 15, 9));
      }
    }
    const status = told(name, state, row, track);
    return [
      svg('g', { 'data-key': `row-${name}`, 'data-thing': `request-${name}`, opacity: isDone ? 0.75 : null },
        svg('rect', { x: 1, y: y + 1, width: width - 2, height: high - 5, rx: 6, fill: 'none', stroke: waits || isDone ? 'var(--y-line)' : ink(name),
          'stroke-dasharray': waits ? '4 3' : null, 'stroke-width': waits || isDone ? 1 : 1.8 }),
        svg('circle', { cx: 18, cy: y + 18, r: 11, fill: paper(name), stroke: ink(name), 'stroke-width': 1.5 }),
        text(18, y + 22.5, name, { bold: true, size: 13, anchor: 'middle' }),
        text(left, y + 17, track.questions[name], { size: 12, bold: true }),
        text(width - 10, y + 17, status, { size: 12, anchor: 'end' }),
        ...body.filter((each) => each.tagName === 'text')),
      ...body.filter((each) => each.tagName !== 'text'),
    ];
  }

  const holders = (block, state) => Object.keys(state.tables).filter((name) => state.tables[name].includes(block));

  /** What a block holds: what this step computed as squares that have come from their row, the rest in one piece. */
  function slots(left, top, side, state, [owner, column, filled = 0], isHeld) {
    const row = state.rows.find(([who]) => who === owner);
    const fresh = row ? row[1] - column * 16 : filled; // the first slot that was written now
    const place = (slot) => [left + 2 + (slot % 4) * side, top + 2 + Math.floor(slot / 4) * side];
    const isNew = (slot) => slot >= fresh && slot < fresh + row[2];
    const all = Array.from({ length: filled }, (_, slot) => slot);
    const old = all.filter((slot) => !row || !isNew(slot)).map(place);
    return [
      svg('path', { d: old.map(([x, y]) => `M${x} ${y}h${side - 1}v${side - 1}h${1 - side}z`).join(''), fill: owner ? ink(owner) : 'none',
        opacity: isHeld ? 1 : 0.5, 'pointer-events': 'none' }),
      ...(row?.[2] > 1 ? squares(owner, column * 16 + Math.max(0, fresh), column * 16 + filled, (token) => place(token - column * 16), side - 1, { 'pointer-events': 'none' })
        : all.filter((slot) => row && isNew(slot)).map((slot) => square(owner, column * 16 + slot, ...place(slot), side - 1, { 'pointer-events': 'none' }))),
    ];
  }

  /** The pool: blocks of four by four slots, with their number and who has them in its table. */
  function pool(x, y, pitch, columns, state) {
    const side = Math.floor((pitch - 6) / 4), wide = 4 * side + 3;
    return state.pool.flatMap((entry, block) => {
      const [left, top] = [x + (block % columns) * pitch, y + Math.floor(block / columns) * (wide + 22)];
      const who = holders(block, state);
      const edge = who.length === 1 ? ink(who[0]) : who.length ? 'currentColor' : 'var(--y-line)';
      const [owner, column, filled] = entry;
      const short = who.length > 2 && pitch < 44 ? `×${who.length}` : who.join('');
      return [
        svg('rect', { x: left, y: top, width: wide, height: wide, rx: 3, fill: owner ? paper(owner) : 'none', stroke: edge,
          'stroke-width': who.length > 1 ? 2.5 : who.length ? 1.8 : 1, 'stroke-dasharray': who.length ? null : '3 3',
          'data-key': `block-${block}`, 'data-thing': [`block-${block}`, ...who.map((name) => `request-${name}`)].join(' ') }),
        svg('text', { x: left + wide / 2, y: top + wide + 12, 'text-anchor': 'middle', style: 'font-size: 12px' },
          svg('tspan', { 'fill-opacity': 0.75 }, block),
          svg('tspan', { dx: 4, style: 'font-weight: 700', fill: who.length === 1 ? ink(who[0]) : null }, short)),
        ...slots(left, top, side, state, entry, who.length > 0),
      ];
    });
  }

  /** The tree: a row for each path that ends, a chip for each block, in the column where it stands in a prompt. */
  function tree(x, y, wide, high, state) {
    const ends = new Map([[-1, [0, -1]]]); // by last block: [column after it, row]
    const drawn = [], taken = new Map();
    let rows = 0;
    for (const [above, blocks, locks] of state.tree) {
      const [column, parent] = ends.get(above);
      const row = parent >= 0 && !taken.get(above) ? parent : rows;
      taken.set(above, true);
      rows = Math.max(rows, row + 1);
      ends.set(blocks.at(-1), [column + blocks.length, row]);
      const [left, top] = [x + 14 + column * (wide + 4), y + row * high];
      const joint = left - 2;
      drawn.push(svg('path', { d: `M${joint} ${parent < 0 ? y + 10 : y + parent * high + 10}V${top + 10}H${left}`, fill: 'none',
        stroke: 'var(--y-line)', 'data-key': `edge-${blocks[0]}` }));
      blocks.forEach((block, at) => {
        const [owner] = state.pool[block];
        const chip = left + at * (wide + 4);
        drawn.push(svg('g', { 'data-key': `filed-${block}`, 'data-thing': `block-${block}` },
          svg('rect', { x: chip, y: top, width: wide + (at < blocks.length - 1 ? 4 : 0), height: 20, fill: owner ? paper(owner) : 'none',
            stroke: owner ? ink(owner) : 'currentColor', 'stroke-dasharray': locks ? null : '3 2' }),
          text(chip + wide / 2, top + 14.5, block, { anchor: 'middle', bold: true })));
      });
    }
    drawn.push(svg('circle', { cx: x + 4, cy: y + 10, r: 4, fill: 'currentColor' }), svg('path', { d: `M${x + 4} ${y + 10}h8`, stroke: 'var(--y-line)' }));
    return drawn;
  }

  /** All steps so far: a line for each request. */
  function history(x, y, width, track, index) {
    const names = Object.keys(track.prompts), last = track.steps.length - 1;
    const unit = (width - x - 8) / last;
    const numbers = [1, ...Array.from({ length: Math.floor(last / 10) }, (_, i) => 10 * (i + 1))].filter((n) => n < last - 2 || n === 1);
    return [
      ...names.flatMap((name, row) => [
        text(x - 8, y + row * 14 + 10, name, { anchor: 'end', bold: true }),
        ...wholeGame.runs(track, name, index).map(([from, to, kind]) => svg('rect', {
          x: x + from * unit, y: y + row * 14 + (kind === 'wait' ? 5 : 0), width: Math.max((to - from) * unit - 0.8, 1.5), height: kind === 'wait' ? 1.5 : 11,
          fill: kind === 'wait' ? 'var(--y-line)' : kind === 'prefill' ? ink(name) : paper(name), stroke: kind === 'decode' ? ink(name) : 'none',
          'stroke-width': 0.8, 'data-key': `past-${name}-${from}`, 'data-thing': `request-${name}` }))]),
      svg('path', { d: `M${x + index * unit} ${y - 3}V${y + 55}`, stroke: 'currentColor', 'stroke-width': 2, 'data-key': 'now' }),
      ...[...numbers, ...(index === last ? [last] : [])].map((n) => text(x + (n - 0.5) * unit, y + 68, n, { anchor: 'middle' })),
    ];
  }

  /** The model, through which the tokens of a step pass on their way from a row to a slot. */
  function model(x, y, wide, high, isWorking) {
    const [middle, centre] = [x + wide / 2, y + high / 2];
    return svg('g', { 'data-key': 'model' },
      svg('rect', { x, y, width: wide, height: high, rx: 6, fill: isWorking ? 'var(--y-grey-soft)' : 'none', stroke: 'currentColor' }),
      [...'model'].map((letter, at) => text(middle, centre + 4 + 15 * (at - 2), letter, { anchor: 'middle', bold: true })));
  }

  /** How many steps these tokens have taken, and how many they would take one request after the other. */
  function counted(track, index) {
    const steps = `Steps so far${index ? `: ${index}` : ''}`;
    if (!track.ms || !index) return steps;
    return `${steps}. One by one: ${wholeGame.alone(track, index)}`;
  }

  /** How long all steps took, where that was measured, beside one request after the other. */
  const measured = ({ ms, steps }, index) =>
    (ms && index === steps.length - 1 ? `${ms[0]} ms; one by one ${ms[1]} ms` : '');

  function inWords(state, track) {
    const each = Object.keys(track.prompts).map((name) => `${name} ${told(name, state, state.rows.find(([who]) => who === name), track)}`);
    const used = state.pool.filter((_, block) => holders(block, state).length).length;
    return `${each.join(', ')}. ${used} of ${state.pool.length} blocks are in a table, ${state.tree.flatMap(([, blocks]) => blocks).length} in the tree.`;
  }

  yaie.stepped('whole-game', {
    alike: true,
    // A step that says nothing new is passed quickly, and the others can be read.
    beat: (steps, index) => (steps[index].say === steps[index - 1]?.say ? 0.75 : 3),
    draw(stage, step, track, index) {
      const state = wholeGame.states(track)[index];
      const width = room(stage), narrow = isNarrow(stage);
      const total = state.rows.reduce((sum, [, , count]) => sum + count, 0);
      const used = state.pool.filter((_, block) => holders(block, state).length).length;
      // Wide: memory beside the requests. On a phone: below them.
      const left = narrow ? width : width - 318, right = narrow ? 1 : left + 46;
      const pitch = Math.floor((width - right - 2) / 8);
      const [high, deep] = narrow ? [56, 22] : [60, 24]; // of a request, of a row of the tree
      const top = narrow ? TOP + 4 * high + 12 : 14;
      const forest = top + 2 * (4 * Math.floor((pitch - 6) / 4) + 25) + 24;
      const past = narrow ? forest + 4 * deep + 24 : TOP + 4 * high + 18;
      const chip = Math.min(30, Math.floor((width - right - 30) / 7) - 4);
      stage.append(picture(width, past + 82, inWords(state, track),
        text(1, 14, index ? `Step ${index}: ${total} ${total === 1 ? 'token' : 'tokens'}` : 'Four requests', { bold: true, size: 13 }),
        text(left - 2, 14, measured(track, index), { anchor: 'end', size: 13 }),
        narrow ? null : model(left + 8, TOP + 1, 26, 4 * high - 6, index > 0), // a phone has no room for it
        ...Object.keys(track.prompts).flatMap((name) => request(name, TOP + state.order.indexOf(name) * high, left, high, state, track, wholeGame.states(track)[index + 1])),
        text(right, top, `KV pool: ${used} of ${state.pool.length} blocks in use`, { bold: true, size: 13 }),
        text(right, forest, 'Radix tree', { bold: true, size: 13 }),
        ...tree(right, forest + 8, chip, deep, state),
        text(1, past, counted(track, index), { bold: true, size: 13 }),
        ...history(22, past + 9, width, track, index),
        ...pool(right + 1, top + 8, pitch, 8, state)));
    },
  });
})();
