// The pool over time: a line for each block, a column for each step of the engine. Beside it the tables of the step
// that is shown, the queue and the host pool; on the lines, copies, preemptions and moves.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text } = yaie.stage;
  const COLOURS = { A: 'blue', B: 'orange', C: 'green', 'C′': 'green', D: 'purple' };
  const [LINE, ROW] = [16, 22];
  const ink = (name) => `var(--y-${COLOURS[name]})`, paper = (name) => `var(--y-${COLOURS[name]}-soft)`;

  const holders = (step, block) => Object.keys(step.tables).filter((name) => step.tables[name].includes(block));

  /** [from, to, who] for each stretch of steps in which a block had the same holders; who is empty if only the tree had it. */
  const memo = new WeakMap();
  function stretches(track) {
    if (memo.has(track)) return memo.get(track);
    const found = Array.from({ length: track.blocks }, (_, block) => {
      const all = [];
      track.steps.forEach((step, at) => {
        const who = holders(step, block);
        if (!who.length && !step.kept.includes(block)) return;
        const last = all.at(-1);
        if (last?.[1] === at && last[2].join() === who.join()) last[1] = at + 1;
        else all.push([at, at + 1, who]);
      });
      return all;
    });
    memo.set(track, found);
    return found;
  }

  /** A stretch: a stripe for each holder; an empty frame of dashes where only the tree has the block. */
  function stretch(block, [from, to, who], x, y, unit, now) {
    if (from > now) return [];
    const width = (Math.min(to, now + 1) - from) * unit - 0.6, left = x + from * unit, high = LINE - 3;
    const key = `held-${block}-${from}`, thing = [`block-${block}`, ...who.map((name) => `request-${name}`)].join(' ');
    if (!who.length) {
      return [svg('rect', { x: left, y: y + 1, width, height: high - 1, rx: 2, fill: 'none', stroke: 'var(--y-grey)', 'stroke-dasharray': '3 2',
        'data-key': key, 'data-thing': thing })];
    }
    const words = who.join('');
    return [
      ...who.map((name, at) => svg('rect', { x: left, y: y + at * (high / who.length), width, height: high / who.length, fill: paper(name),
        'data-key': `${key}-${name}`, 'data-thing': thing })),
      svg('rect', { x: left, y, width, height: high, rx: 2, fill: 'none', stroke: who.length > 1 ? 'currentColor' : ink(who[0]), 'data-key': key,
        'pointer-events': 'none' }),
      width > words.length * 7.3 + 4 ? text(left + 3, y + high - 2.5, words, { bold: true, 'pointer-events': 'none', 'data-key': `${key}-words` }) : null,
    ];
  }

  /** A bent arrow from one line to another at a step. */
  function move(x, from, to, key, colour, isNow) {
    const way = to > from ? -1 : 1;
    return svg('path', { d: `M${x} ${from}V${to}l-4 ${6 * way}m4 ${-6 * way}l4 ${6 * way}`, fill: 'none', stroke: colour,
      'stroke-width': isNow ? 3 : 1.5, 'data-key': key });
  }

  function events(track, now, x, top, hostTop, unit) {
    const line = (block) => top + block * LINE + LINE / 2, host = (place) => hostTop + place * LINE + LINE / 2;
    return track.steps.slice(0, now + 1).flatMap((step, at) => {
      const here = x + at * unit, isNow = at === now;
      return [
        ...step.copies.map(([from, to]) => move(here + 2, line(from), line(to) - 5 * Math.sign(to - from), `copy-${at}-${from}`, 'currentColor', isNow)),
        ...step.out.map(([from, to], i) => move(here - 2 + 4 * i, line(from), host(to), `out-${at}-${from}`, 'var(--y-red)', isNow)),
        ...step.back.map(([from, to], i) => move(here + 2 + 4 * i, host(from), line(to), `back-${at}-${from}`, 'var(--y-red)', isNow)),
        ...step.preempted.map((name) => text(here, top - 5, `✕${name}`, { bold: true, anchor: 'middle', 'data-key': `lost-${at}`, 'data-thing': `request-${name}` })),
      ];
    });
  }

  /** What lies in the host pool: a bar from the step of the copy out to that of the copy back. */
  function hosted(track, now, x, hostTop, unit) {
    const open = new Map(), found = [];
    track.steps.slice(0, now + 1).forEach((step, at) => {
      for (const [name, slots] of [...open]) {
        if (!(name in step.host)) { found.push(...slots.map((slot) => [...slot, at, name])); open.delete(name); }
      }
      if (step.out.length) open.set(step.preempted[0], step.out.map(([, to]) => [to, at]));
    });
    for (const [name, slots] of open) found.push(...slots.map((slot) => [...slot, now + 1, name]));
    return found.map(([place, from, to, name]) => svg('rect', { x: x + from * unit, y: hostTop + place * LINE, width: (to - from) * unit, height: LINE - 3, rx: 2,
      fill: paper(name), stroke: ink(name), 'data-key': `host-${place}-${from}`, 'data-thing': `request-${name}` }));
  }

  /** The tables at this step: a chip for each entry. */
  function tables(step, track, x, top, width) {
    const chip = Math.min(26, Math.floor((width - 96) / 7));
    return track.order.flatMap((name, row) => {
      const y = top + row * ROW, table = step.tables[name] ?? [];
      const status = table.length ? `${step.computes[name] ?? 0}` : step.queue.includes(name) ? 'waits' : name in step.host ? 'waits' : 'done';
      return [
        text(x + 4, y + 14, name, { bold: true, size: 13, 'data-thing': `request-${name}` }),
        text(x + 70, y + 14, table.length ? `+${status}` : status, { anchor: 'end' }),
        ...table.map((block, at) => {
          const many = holders(step, block).length > 1;
          return svg('g', { 'data-key': `entry-${name}-${at}-${block}`, 'data-thing': `block-${block} request-${name}` },
            svg('rect', { x: x + 80 + at * chip, y: y + 1, width: chip - 2, height: 17, rx: 2, fill: paper(name), stroke: many ? 'currentColor' : ink(name),
              'stroke-width': many ? 2 : 1 }),
            text(x + 80 + at * chip + chip / 2 - 1, y + 14, block, { anchor: 'middle' }));
        }),
      ];
    });
  }

  function inWords(step) {
    const told = Object.entries(step.tables).map(([name, table]) => `${name}: ${table.join(', ')}`);
    return `Block tables: ${told.join('; ')}. In the tree only: ${step.kept.join(', ') || 'none'}. Waiting: ${step.queue.join(', ') || 'none'}.`;
  }

  yaie.stepped('memory-line', {
    alike: true,
    draw(stage, step, track, now) {
      const width = room(stage), narrow = isNarrow(stage);
      const left = narrow ? 0 : 262, x = left + 24;
      const tall = track.order.length * ROW;
      const top = narrow ? tall + 52 : 30, hostTop = top + track.blocks * LINE + 22;
      const unit = (width - x - 4) / track.steps.length;
      const hosts = track.host_blocks ? 4 : 0; // of the host pool, as many as are used
      const bottom = hosts ? hostTop + hosts * LINE : top + track.blocks * LINE;
      const here = x + (now + 1) * unit, last = track.steps.length;
      stage.append(picture(width, bottom + 20, inWords(step),
        text(1, 13, `Step ${now + 1}: block tables`, { bold: true, size: 13 }),
        ...tables(step, track, 0, 22, narrow ? width : left),
        ...(narrow ? [] : [
          text(4, 30 + tall + 10, '+n: tokens computed in this step'),
          text(4, 30 + tall + 28, 'thick: in several tables'),
          text(4, 30 + tall + 46, 'dashed: only the tree has it'),
          text(4, 30 + tall + 64, '↕ black: copy on write'),
          hosts ? text(4, 30 + tall + 82, '↕ red: to the host and back') : null,
          text(4, 30 + tall + (hosts ? 100 : 82), '✕: preempted')]),
        text(x - 22, top - 17, 'blocks of the pool', { bold: true, size: 13 }),
        ...Array.from({ length: track.blocks }, (_, block) => text(x - 6, top + block * LINE + 12, block, { anchor: 'end', 'data-thing': `block-${block}` })),
        ...stretches(track).flatMap((all, block) => all.flatMap((each) => stretch(block, each, x, top + block * LINE, unit, now))),
        hosts ? text(x - 22, hostTop - 6, 'host pool', { bold: true, size: 13 }) : null,
        ...hosted(track, now, x, hostTop, unit),
        ...events(track, now, x, top, hostTop, unit),
        svg('path', { d: `M${here} ${top - 4}V${bottom}`, stroke: 'currentColor', 'stroke-width': 1.5, 'data-key': 'now' }),
        ...[1, ...Array.from({ length: Math.floor((last - 6) / 10) }, (_, i) => 10 * (i + 1)), last].map((n) =>
          text(x + (n - 0.5) * unit, bottom + 15, n, { anchor: 'middle' }))));
    },
  });
})();
