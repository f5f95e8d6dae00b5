// Block tables on the left, the pool on the right: what is in each slot, who holds the block, how often.
'use strict';

(() => {
  const STYLE = `
    .bt { display: flex; flex-wrap: wrap; gap: 0.5em 1.4em; font: 13px/1.3 var(--mono-font); }
    .bt-tables { flex: 1 0 190px; }
    .bt-pool { flex: 3 0 288px; display: grid; gap: 6px; align-content: start;
      grid-template-columns: repeat(auto-fill, minmax(88px, 1fr)); }
    .bt-row { display: flex; align-items: center; gap: 3px; min-height: 26px; }
    .bt-row b { flex: none; width: 2.2em; }
    .bt-entry { min-width: 24px; text-align: center; border: 1px solid var(--y-line); border-radius: 3px; }
    .bt-length { margin-inline-start: 0.5em; color: var(--y-grey); }
    .bt-block { border: 1.5px solid var(--y-line); border-radius: 4px; overflow: hidden; }
    .bt-head, .bt-foot { display: flex; justify-content: space-between; padding: 0 5px; }
    .bt-foot { min-height: 1.45em; border-top: 1px solid var(--y-line);
      font-size: 12px; white-space: nowrap; }
    .bt-slot { padding: 0 5px; min-height: 1.35em; white-space: nowrap; font-size: 12px; }
    .bt-slot > span { display: inline-block; }
    .bt-slot + .bt-slot { border-top: 1px dotted var(--y-line); }
    .bt-free { border-style: dashed; color: var(--y-grey); }
    .bt-used > .bt-head, .bt-used.bt-entry { background: var(--y-blue-soft); }
    .bt-shared > .bt-head, .bt-shared.bt-entry { background: var(--y-green-soft); }
    .bt-cached > .bt-head { background: repeating-linear-gradient(135deg,
      var(--y-orange-soft) 0 6px, transparent 6px 9px); }
    .bt-wrote { outline: 2.5px solid currentColor; outline-offset: -1px; }
    @media (max-width: 600px) {
      .bt-pool { flex-basis: 100%; grid-template-columns: repeat(4, 1fr); gap: 5px; }
      .bt-slot { padding: 0 3px; font-family: "Open Sans", sans-serif; }
      .bt-head, .bt-foot { padding: 0 3px; }
      .bt-row { min-height: 22px; }
    }
    .bt-legend { flex: 1 0 100%; display: flex; flex-wrap: wrap; gap: 0.2em 1.2em; font-size: 12px; }
    .bt-legend i { display: inline-block; width: 1.3em; height: 1em; margin-inline-end: 0.4em;
      vertical-align: -0.15em; border: 1px solid var(--y-line); font-style: normal; }`;
  document.head.append(yaie.html('style', {}, STYLE));

  const { html } = yaie;
  const KINDS = { free: 'free', used: 'in one table', shared: 'in several tables', cached: 'cached: in the tree only' };

  /** Each block with its holders: { id, refs, owners, inTree, kind }. */
  function blocksOf(step) {
    return step.refs.map((refs, id) => {
      const owners = Object.keys(step.tables).filter((name) => step.tables[name].includes(id));
      const inTree = step.tree.includes(id) && refs > 0;
      const kind = owners.length > 1 ? 'shared' : owners.length ? 'used' : inTree ? 'cached' : 'free';
      return { id, refs, owners, inTree, kind };
    });
  }

  function table(name, entries, length, blocks) {
    return html('div', { class: 'bt-row', 'data-thing': 'table' }, html('b', { 'data-thing': `table-${name}` }, name),
      entries.map((id, place) => html('span', { class: `bt-entry bt-${blocks[id].kind}`, 'data-key': `entry-${name}-${place}`, 'data-thing': `block-${id} table-${name} table` }, id)),
      html('span', { class: 'bt-length' }, `${length}`));
  }

  function card(block, step) {
    const copied = (step.copied ?? []).find(([, fresh]) => fresh === block.id);
    const gone = (step.gone ?? []).includes(block.id);
    const note = copied ? `copy of ${copied[0]}` : gone ? 'evicted' : '';
    const holders = [...block.owners, ...(block.inTree ? ['T'] : [])];
    const wrote = (step.wrote ?? []).includes(block.id) ? ' bt-wrote' : '';
    return html('div', { class: `bt-block bt-${block.kind}${wrote}`, 'data-thing': [`block-${block.id}`, block.kind,
      ...block.owners.map((name) => `table-${name}`)].join(' ') },
      html('div', { class: 'bt-head', 'data-key': `head-${block.id}` }, html('b', {}, block.id),
        html('span', {}, block.refs ? `×${block.refs}` : 'free')),
      // What is copied comes from the block that it is a copy of.
      step.slots[block.id].map((word, slot) => html('div', { class: 'bt-slot' },
        word ? html('span', { 'data-key': `${word}-${block.id}-${slot}` }, word) : '')),
      html('div', { class: 'bt-foot' }, html('b', {}, holders.join(' ')), html('span', {}, note)));
  }

  function legend() {
    const sample = (name) => html('i', { class: name });
    const block = (kind) => html('span', { class: `bt-${kind}` },
      html('i', { class: 'bt-head' }), KINDS[kind]);
    return html('div', { class: 'bt-legend' }, block('used'), block('shared'), block('cached'),
      html('span', {}, sample('bt-wrote'), 'taken or written in this step'),
      html('span', {}, 'T: held by the radix tree'),
      html('span', {}, '×n: references, one for each holder'));
  }

  function inWords(step, blocks) {
    const tables = Object.entries(step.tables).map(([name, ids]) => `${name}: ${ids.join(', ')}`);
    const count = (kind) => blocks.filter((block) => block.kind === kind).length;
    return `Block tables: ${tables.join('; ') || 'none'}. Of ${blocks.length} blocks `
      + `${count('used')} are in one table, ${count('shared')} in several, `
      + `${count('cached')} cached only, ${count('free')} free.`;
  }

  yaie.stepped('block-table', {
    draw(stage, step) {
      const blocks = blocksOf(step);
      const rows = Object.entries(step.tables).map(([name, ids]) =>
        table(name, ids, `${step.tokens[name]} tokens`, blocks));
      stage.append(html('div', { class: 'bt', role: 'img', 'aria-label': inWords(step, blocks) },
        html('div', { class: 'bt-tables' }, html('div', {}, 'block tables'),
          rows.length ? rows : html('div', { class: 'bt-length' }, '(none yet)')),
        html('div', { class: 'bt-pool' }, blocks.map((block) => card(block, step))),
        legend()));
    },
  });
})();
