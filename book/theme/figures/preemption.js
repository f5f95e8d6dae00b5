// Queue, running requests and the pool of blocks, at the steps in which one of them changes.
'use strict';

(() => {
  const { svg, html } = yaie;
  const { isNarrow, room, picture } = yaie.stage;
  const { text, hatching, legend, KINDS } = yaie.timeline;
  const [GAP, COLUMNS, CHIP, RUNNING] = [4, 8, 31, 84];
  const COLOURS = { A: 'blue', B: 'orange', C: 'green', D: 'red' };
  const STYLE = `
    .pe-parts { display: flex; flex-wrap: wrap; gap: 0.4em 2em; }
    figure.moving .stage .pe-parts svg { flex: 1 1 270px; margin: 0; align-self: start; }
    .pe-counts { display: flex; flex-wrap: wrap; gap: 0.1em 2em; margin: 0.4em 0 0; font-size: 0.9em; }`;
  document.head.append(html('style', {}, STYLE));

  const heading = (y, words, x, thing) => text(x, y, words, { anchor: 'start', bold: true, 'data-thing': thing });
  const colour = (name) => COLOURS[name.toUpperCase()] ?? 'grey';
  const isKept = (owner) => owner !== owner.toUpperCase();

  function chip(x, y, width, name, where, words = '') {
    const look = { fill: `var(--y-${colour(name)}-soft)`, stroke: `var(--y-${colour(name)})` };
    return svg('g', { 'data-key': `request-${name}`, 'data-thing': `request-${name} ${where}` },
      svg('rect', { x, y, width, height: 26, rx: 13, ...look }),
      text(x + 16, y + 18, name, { bold: true, size: 14 }),
      text(x + 32, y + 17, words, { anchor: 'start' }));
  }

  function line(step) {
    const rows = Math.max(4, step.running.length);
    const work = ({ tokens, computes }) => (computes > 1 ? `computes ${computes} of ${tokens}` : `${tokens} tokens`);
    return picture(270, 26 + rows * CHIP, `Waiting: ${step.queue.join(', ') || 'none'}. `
        + `Running: ${step.running.map((each) => `${each.name}, ${work(each)}`).join('; ')}.`,
    heading(14, 'queue', 1, 'queue'), heading(14, 'running', RUNNING + 1, 'running'),
    step.queue.map((name, row) => chip(1, 24 + row * CHIP, 62, name, 'queue')),
    step.running.map((each, row) => chip(RUNNING + 1, 24 + row * CHIP, 180, each.name, 'running', work(each))));
  }

  /**
   * What each block holds, named once for all steps of a track: [{ pool: [name], host: [name] }]. A block that is
   * copied to the host pool and back is the same content in another place, and keeps its name.
   */
  const named = new WeakMap();
  function contents(track) {
    if (named.has(track)) return named.get(track);
    let [last, next] = [{ pool: [], host: [], owners: [], hosted: [] }, 0];
    const all = track.steps.map((step) => {
      const moving = {}; // names of what has left a pool, by owner
      const leave = (owners, names, kept) => owners.forEach((owner, place) => {
        if (owner && owner.toUpperCase() !== kept[place]?.toUpperCase()) (moving[owner.toUpperCase()] ??= []).push(names[place]);
      });
      leave(last.owners, last.pool, step.pool);
      leave(last.hosted, last.host, step.host);
      const names = (owners, before, beforeNames) => owners.map((owner, place) => {
        if (!owner) return null;
        if (before[place]?.toUpperCase() === owner.toUpperCase()) return beforeNames[place];
        return moving[owner.toUpperCase()]?.shift() ?? `content-${next += 1}`;
      });
      const pool = names(step.pool, last.owners, last.pool);
      last = { pool, host: names(step.host, last.hosted, last.host), owners: step.pool, hosted: step.host };
      return last;
    });
    named.set(track, all);
    return all;
  }

  /** A block: a letter for whose it is; hatched and small where only the tree holds it. */
  function block(x, y, side, owner, taken, key) {
    const place = { x, y, width: side, height: side, rx: 3 };
    if (!owner) return svg('rect', { ...place, ...KINDS.empty });
    const mine = { 'data-key': key, 'data-thing': `request-${owner.toUpperCase()} ${isKept(owner) ? 'tree' : 'held'}` };
    const label = text(x + side / 2, y + side / 2 + 5, owner, { bold: !isKept(owner), size: 14 });
    if (isKept(owner)) {
      const paper = { x: x + 10, y: y + 8, width: side - 20, height: side - 16, fill: 'var(--bg)' };
      return svg('g', mine, svg('rect', { ...place, fill: 'none', stroke: 'var(--y-grey)' }),
        hatching(x, y, side, side), svg('rect', paper), label);
    }
    const edge = taken ? { stroke: 'currentColor', 'stroke-width': 3 } : { stroke: `var(--y-${colour(owner)})` };
    return svg('g', mine, svg('rect', { ...place, fill: `var(--y-${colour(owner)}-soft)`, ...edge }), label);
  }

  const grid = (owners, names, top, side, before) => owners.flatMap((owner, index) => {
    const at = [2 + (index % COLUMNS) * (side + GAP), top + Math.floor(index / COLUMNS) * (side + GAP)];
    return [svg('rect', { x: at[0], y: at[1], width: side, height: side, rx: 3, ...KINDS.empty }),
      owner ? block(...at, side, owner, owner !== before[index], names[index]) : null];
  });

  function pools(stage, step, before, track, index) {
    const side = isNarrow(stage) ? Math.min(38, (room(stage) - 4) / COLUMNS - GAP) : 38;
    const host = Array.from({ length: track.host_blocks }, (_, place) => step.host[place] ?? '');
    const below = 24 + Math.ceil(step.pool.length / COLUMNS) * (side + GAP) + 14;
    const shown = step.pool.map((owner) =>
      (owner === '' ? 'free' : isKept(owner) ? `${owner} in the tree only` : owner));
    const names = contents(track)[index];
    return picture(COLUMNS * (side + GAP) + 2, host.length ? below + 8 + side + GAP : below - 8, `Blocks of the pool: ${shown.join(', ')}.`
        + (host.length ? ` In the host pool: ${step.host.join(', ') || 'none'}.` : ''),
    heading(14, `pool: ${step.pool.length} blocks`, 2, 'held'), grid(step.pool, names.pool, 24, side, before.pool),
    host.length ? heading(below, `host pool: ${host.length} blocks`, 2, 'host') : null,
    grid(host, names.host, below + 8, side, host));
  }

  function counts({ pool, computed, twice, moved }) {
    const kept = pool.filter((owner) => owner && isKept(owner)).length;
    const free = pool.filter((owner) => !owner).length;
    return html('p', { class: 'pe-counts' }, [
      `blocks: ${pool.length - kept - free} in use, ${kept} in the tree only, ${free} free`,
      `tokens computed so far: ${computed}, twice: ${twice}`,
      `blocks moved: ${moved}`,
    ].map((words) => html('span', {}, words)));
  }

  yaie.stepped('preemption', {
    draw(stage, step, track, index) {
      const before = track.steps[Math.max(0, index - 1)];
      stage.append(
        html('p', { class: 'tl-name' }, html('strong', {}, `Step ${step.now} of the engine`)),
        html('div', { class: 'pe-parts' }, line(step), pools(stage, step, before, track, index)),
        legend(['empty', 'free'], ['nobody', 'small letter: only the tree holds it']),
        counts(step));
    },
  });
})();
