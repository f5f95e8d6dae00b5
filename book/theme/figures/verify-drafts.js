// A text in blocks with drafts behind it, the rows of the pass that verifies them, and what is kept.
'use strict';

(() => {
  const { html } = yaie;
  const { tables } = yaie.timeline;
  const STYLE = `
    .vd-text { display: flex; flex-wrap: wrap; gap: 6px; margin: 0.3em 0 0.7em; }
    .vd-block { display: flex; gap: 3px; padding: 4px; border: 1px solid var(--y-line); border-radius: 4px; }
    .vd-token { border: 1px solid transparent; border-radius: 3px; padding: 0 4px; font: 13px monospace; white-space: pre; }
    .vd-token.vd-prompt { background: var(--y-grey-soft); }
    .vd-token.vd-answer { background: var(--y-blue-soft); border-color: var(--y-blue); }
    .vd-token.vd-next { border: 2px solid var(--y-blue); font-weight: 700; }
    .vd-token.vd-found { border: 2px solid currentColor; text-decoration: underline; }
    .vd-token.vd-draft { border: 1px dashed var(--y-orange); background: var(--y-orange-soft); }
    .vd-token.vd-right { border: 2px solid var(--y-green); background: var(--y-green-soft); }
    .vd-token.vd-wrong { border: 1px solid var(--y-red); background: var(--y-red-soft); text-decoration: line-through; }
    .vd-legend { display: flex; flex-wrap: wrap; gap: 0.3em 0.9em; margin: 0.6em 0 0; font-size: 0.85em; }`;
  document.head.append(html('style', {}, STYLE));

  const MARKS = { right: '✓ ', wrong: '✗ ', draft: '? ' };
  const VERDICTS = {
    right: '✓ the draft was right',
    instead: '✓ counts, and is the last',
    bonus: '✓ counts: the bonus',
    dropped: '✗ after a wrong draft',
  };
  const token = (word, kinds, key) => html('span', { 'data-key': key, 'data-thing': key ? kinds : null, class: `vd-token ${kinds.replace(/\b(?=\w)/g, 'vd-')}` }, `${MARKS[kinds] ?? ''}${word}`);
  const example = (kind, words) => html('span', {}, token('a', kind), ` ${words}`);

  yaie.stepped('verify-drafts', {
    draw(stage, step) {
      stage.append(
        html('div', { class: 'vd-text' }, step.blocks.map((block, number) =>
          html('div', { class: 'vd-block', 'data-thing': `block-${number}` }, block.map(({ word, kind }, place) =>
            token(word, kind, `token-${number}-${place}`))))),
        tables(
          ...(step.rows.length ? [[
            ['row of', 'guessed', 'sampled', 'verdict'],
            ...step.rows.map(({ input, guess, draw, verdict }) => [input, guess, draw, VERDICTS[verdict]]),
          ]] : []),
          [['count', 'is'], ...step.counts]),
        html('p', { class: 'vd-legend' },
          example('prompt', 'prompt'), example('answer', 'answer'), example('next', 'sampled, not computed'),
          example('prompt found', 'found again'), example('draft', 'draft'), example('right', 'accepted'), example('wrong', 'rejected')),
      );
    },
  });
})();
