// Queue, running requests and the pool of blocks, at the steps in which one of them changes.
'use strict';

(() => {
  const { svg, html } = yaie;
  const { text, hatching, legend, KINDS } = yaie.timeline;
  const [SIDE, GAP, COLUMNS, CHIP, RUNNING] = [34, 5, 8, 31, 84];
  const COLOURS = { A: 'blue', B: 'orange', C: 'green', D: 'red' };
  const STYLE = `
    .pe-parts { display: flex; flex-wrap: wrap; gap: 0.8em 2em; }
    figure.moving .stage .pe-parts svg { flex: 1 1 250px; max-width: 390px; margin: 0; align-self: start; }
    .pe-counts { display: flex; flex-wrap: wrap; gap: 0.2em 2em; margin: 0.6em 0 0; font-size: 0.9em; }`;
  document.head.append(html('style', {}, STYLE));

  const heading = (y, words, x = 0) => text(x, y, words, { anchor: 'start', size: 12, bold: true });
  const colour = (name) => COLOURS[name.toUpperCase()] ?? 'grey';
  const isKept = (owner) => owner !== owner.toUpperCase();

  function chip(x, y, width, name, words = '') {
    const look = { fill: `var(--y-${colour(name)}-soft)`, stroke: `var(--y-${colour(name)})` };
    return svg('g', {}, svg('rect', { x, y, width, height: 26, rx: 13, ...look }),
      text(x + 16, y + 18, name, { bold: true, size: 14 }),
      text(x + 32, y + 17, words, { anchor: 'start', size: 12 }));
  }

  function line(step) {
    const rows = Math.max(4, step.running.length);
    const work = ({ tokens, computes }) => (computes > 1 ? `computes ${computes} of ${tokens}` : `${tokens} tokens`);
    return svg('svg', {
      viewBox: `0 0 270 ${26 + rows * CHIP}`, role: 'img',
      'aria-label': `Waiting: ${step.queue.join(', ') || 'nobody'}. `
        + `Running: ${step.running.map((each) => `${each.name}, ${work(each)}`).join('; ')}.`,
    },
    heading(14, 'queue', 1), heading(14, 'running', RUNNING + 1),
    step.queue.map((name, row) => chip(1, 24 + row * CHIP, 62, name)),
    step.running.map((each, row) => chip(RUNNING + 1, 24 + row * CHIP, 180, each.name, work(each))));
  }

  /** A block: a letter for whose it is; hatched and small where only the tree holds it. */
  function block(x, y, owner, taken) {
    const place = { x, y, width: SIDE, height: SIDE, rx: 3 };
    if (!owner) return svg('rect', { ...place, ...KINDS.empty });
    const label = text(x + SIDE / 2, y + SIDE / 2 + 5, owner, { bold: !isKept(owner), size: 14 });
    if (isKept(owner)) {
      const paper = { x: x + 10, y: y + 8, width: SIDE - 20, height: SIDE - 16, fill: 'var(--bg)' };
      return svg('g', {}, svg('rect', { ...place, fill: 'none', stroke: 'var(--y-grey)' }),
        hatching(x, y, SIDE, SIDE), svg('rect', paper), label);
    }
    const edge = taken ? { stroke: 'currentColor', 'stroke-width': 3 } : { stroke: `var(--y-${colour(owner)})` };
    return svg('g', {}, svg('rect', { ...place, fill: `var(--y-${colour(owner)}-soft)`, ...edge }), label);
  }

  const grid = (owners, top, before) => owners.map((owner, index) => block(
    2 + (index % COLUMNS) * (SIDE + GAP), top + Math.floor(index / COLUMNS) * (SIDE + GAP),
    owner, owner !== before[index]));

  function pools(step, before, hostBlocks) {
    const host = Array.from({ length: hostBlocks }, (_, place) => step.host[place] ?? '');
    const below = 24 + Math.ceil(step.pool.length / COLUMNS) * (SIDE + GAP) + 16;
    const shown = step.pool.map((owner) =>
      (owner === '' ? 'free' : isKept(owner) ? `${owner} in the tree only` : owner));
    return svg('svg', {
      viewBox: `0 0 ${COLUMNS * (SIDE + GAP)} ${below + 8 + SIDE + GAP}`, role: 'img',
      'aria-label': `Blocks of the pool: ${shown.join(', ')}.`
        + (host.length ? ` In the host pool: ${step.host.join(', ') || 'none'}.` : ''),
    },
    heading(14, `pool: ${step.pool.length} blocks`, 2), grid(step.pool, 24, before.pool),
    host.length ? heading(below, `host pool: ${host.length} blocks`, 2) : null,
    grid(host, below + 8, host));
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
        html('div', { class: 'pe-parts' }, line(step), pools(step, before, track.host_blocks)),
        legend(['empty', 'free'], ['nobody', 'small letter: only the tree holds it']),
        counts(step));
    },
  });
})();
