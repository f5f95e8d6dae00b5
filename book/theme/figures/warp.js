// A warp and its memory: what the 32 lanes of one instruction ask for, as the CUDA-on-CPU runtime kept it. In global memory
// they touch sectors of 32 bytes; in shared memory they want words of 32 banks, which hand out one word each in a pass.
'use strict';

const warp = (() => {
  const BANKS = 32, WORD = 4;

  /**
   * How a request to shared memory is served: [lane, bank, pass] of each word, and the passes of each group of lanes.
   * lanes: [lane, first word]; size: bytes of each. Lanes that want the same word share it, as in the runtime's counters.
   */
  function serve(lanes, size) {
    const words = Math.max(1, size / WORD), group = Math.max(1, BANKS / words);
    const found = [], groups = [];
    let begun = 0;
    for (let first = 0; first < 32; first += group) {
      const asked = lanes.filter(([lane]) => lane >= first && lane < first + group);
      if (!asked.length) continue;
      const passOf = new Map(), next = Array.from({ length: BANKS }, () => 0);
      for (const [lane, begin] of asked) {
        for (let word = begin; word < begin + words; word += 1) {
          const bank = word % BANKS;
          if (!passOf.has(word)) { passOf.set(word, next[bank]); next[bank] += 1; }
          found.push([lane, bank, begun + passOf.get(word), word]);
        }
      }
      const passes = Math.max(...next);
      groups.push([first, passes]);
      begun += passes;
    }
    return { words: found, groups, passes: begun, extra: begun - groups.length };
  }

  return { serve };
})();

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text } = yaie.stage;
  const COLOURS = ['blue', 'orange', 'green', 'purple'];
  const colourOf = (lane) => COLOURS[Math.floor(lane / 8)];

  /** The lanes of the warp; those that take part are filled. */
  function lanes(step, pitch, y) {
    const part = new Set(step.lanes.map(([lane]) => lane));
    return Array.from({ length: 32 }, (_, lane) => {
      const look = part.has(lane) ? { fill: `var(--y-${colourOf(lane)}-soft)`, stroke: `var(--y-${colourOf(lane)})` }
        : { fill: 'none', stroke: 'var(--y-line)', 'stroke-dasharray': '2 2' };
      return [
        svg('rect', { x: 1 + lane * pitch, y, width: pitch - 2, height: 18, rx: 2, ...look, 'data-thing': `lane-${lane}` }),
        lane % 8 === 0 || lane === 31 || pitch > 18 ? text(1 + (lane + 0.5) * pitch - 1, y - 5, lane, { anchor: 'middle' }) : null,
      ];
    }).flat();
  }

  /** Sectors in the order of their addresses; a gap lies between two that are not neighbours. */
  function global(stage, step, track, index) {
    const width = room(stage), pitch = (width - 2) / 32;
    const gap = Math.min(8, 4 * 32 / step.sectors), top = 132, high = 30;
    const unit = Math.min(64, (width - 4 - gap * step.gaps.length) / step.sectors);
    const lefts = [];
    for (let sector = 0, x = 2; sector < step.sectors; sector += 1) {
      lefts.push(x);
      x += unit + (step.gaps.includes(sector) ? gap : 0);
    }
    const middle = (lane) => 1 + (lane + 0.5) * pitch - 1;
    const done = track.steps.slice(0, index + 1);
    const moved = done.reduce((sum, each) => sum + each.sectors, 0);
    const used = done.reduce((sum, each) => sum + new Set(each.lanes.map(([, sector, at]) => `${sector}-${at}`)).size * each.size, 0);
    return picture(width, top + high + 46, step.say,
      text(1, 13, `${step.kind === 'load' ? 'a load' : 'a store'} of one warp (line ${step.line})`, { bold: true, size: 13 }),
      ...lanes(step, pitch, 36),
      ...step.lanes.map(([lane, sector, at]) => svg('path', { d: `M${middle(lane)} 54L${lefts[sector] + (at + step.size / 2) * unit / 32} ${top + 4}`,
        stroke: `var(--y-${colourOf(lane)})`, 'stroke-width': 1, opacity: 0.7, 'data-key': `line-${lane}`, 'data-thing': `lane-${lane}` })),
      ...lefts.map((x, sector) => svg('rect', { x, y: top, width: unit, height: high, rx: 2, fill: 'var(--y-grey-soft)', stroke: 'var(--y-grey)',
        'data-key': `sector-${sector}`, 'data-thing': `sector-${sector}` })),
      ...step.lanes.map(([lane, sector, at]) => svg('rect', { x: lefts[sector] + at * unit / 32, y: top + 5, width: Math.max(1.5, step.size * unit / 32 - 0.6),
        height: high - 10, fill: `var(--y-${colourOf(lane)})`, 'data-key': `bytes-${lane}`, 'data-thing': `lane-${lane} sector-${sector}` })),
      text(1, top + high + 17, `${step.sectors} ${step.sectors === 1 ? 'sector' : 'sectors'} of 32 bytes; filled: asked for`),
      text(1, top + high + 37, `so far: ${moved} sectors moved, ${Math.round(100 * used / (32 * moved))}% used`, { bold: true }));
  }

  /** The banks from left to right, passes from above; a line between groups of lanes that are served one after another. */
  function shared(stage, step, track) {
    const width = room(stage), pitch = (width - 2) / 32, narrow = isNarrow(stage);
    const most = Math.max(...track.steps.map((each) => warp.serve(each.lanes, each.size).passes));
    const high = Math.min(22, 200 / most), top = 96;
    const served = warp.serve(step.lanes, step.size);
    const seen = new Set();
    return picture(width, top + most * high + 40, step.say,
      text(1, 13, `${step.kind === 'load' ? 'a load' : 'a store'} of one warp (line ${step.line}), ${step.size} bytes a lane`, { bold: true, size: 13 }),
      ...lanes(step, pitch, 36),
      text(1, top - 22, 'banks', { bold: true }),
      ...Array.from({ length: 32 }, (_, bank) => (bank % 8 === 0 || bank === 31 || !narrow ? text(1 + (bank + 0.5) * pitch, top - 6, bank, { anchor: 'middle' }) : null)),
      ...Array.from({ length: served.passes }, (_, pass) => svg('rect', { x: 1, y: top + pass * high, width: width - 2, height: high - 1, fill: 'none', stroke: 'var(--y-line)', opacity: 0.5 })),
      ...served.words.flatMap(([lane, bank, pass, word]) => {
        if (seen.has(`${pass}-${word}`)) return [];
        seen.add(`${pass}-${word}`);
        return [svg('rect', { x: 2 + bank * pitch, y: top + pass * high + 1, width: pitch - 2, height: high - 3, rx: 2, fill: `var(--y-${colourOf(lane)}-soft)`,
          stroke: `var(--y-${colourOf(lane)})`, 'data-key': `word-${bank}-${pass}`, 'data-thing': `lane-${lane}` })];
      }),
      text(1, top + served.passes * high + 17, `${served.passes} ${served.passes === 1 ? 'pass' : 'passes'}, where ${served.groups.length} would do`, { bold: true }));
  }

  yaie.stepped('warp', {
    draw(stage, step, track, index) {
      stage.append(track.memory === 'shared' ? shared(stage, step, track) : global(stage, step, track, index));
    },
  });
})();
