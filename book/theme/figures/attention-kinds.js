// What one layer reads to decode one token, by kinds of attention: the context from left to right, an area is bytes.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend, lines } = yaie.stage;
  const { show } = yaie.calculator;
  const { digits, power } = around;
  const LEFT = 4, TALL = 44, LABEL = 16, GAP = 6, PIECES = 16, MARK = 1.2, TOOTH = 6;

  /** Pieces of the context that a layer reads, each { from, share } of it, and bytes a token kept. */
  function pieces(one, context) {
    if (one.kind === 'state') return [];
    if (one.window) return [{ from: Math.max(0, 1 - one.window / context), share: Math.min(1, one.window / context) }];
    const entries = context / (one.group ?? 1);
    if (one.most && entries > one.most) {
      const share = one.most / entries / PIECES;
      return Array.from({ length: PIECES }, (_, piece) => ({ from: (piece + around.random(piece + 1) * (1 - PIECES * share)) / PIECES, share }));
    }
    return [{ from: 0, share: 1 }];
  }

  const keeps = { heads: ({ kvHeads, dim }) => 4 * kvHeads * dim, latent: ({ latent, rotary }) => 2 * (latent + rotary),
    sparse: ({ latent, rotary }) => 2 * (latent + rotary), groups: ({ dim, group }) => (2 * dim) / group };

  /** A bar that goes on below: an outline, torn at its end, that says how much is left out. */
  function torn(y, inner) {
    const teeth = Math.floor(inner / (2 * TOOTH)), edge = Array.from({ length: teeth }, () => `l${-TOOTH} ${-TOOTH} l${-TOOTH} ${TOOTH}`).join('');
    return [svg('path', { d: `M${LEFT} ${y} h${2 * TOOTH * teeth} v${TALL} ${edge} Z`, fill: 'none', stroke: 'var(--y-blue)', 'stroke-width': 1.5,
      'stroke-dasharray': '5 4', 'data-key': 'torn' }),
    text(LEFT + inner / 2, y + TALL / 2 + 2, 'four times as high as the next bar, cut off here', { anchor: 'middle' })];
  }

  /** A row of the picture: what is kept (outlined), what is read (filled). */
  function strip(one, context, { inner, y, most }) {
    const look = { fill: 'var(--y-blue)' };
    if (one.kind === 'state') {
      const { bytes } = around.kinds.state(one), area = (inner * TALL * bytes) / (most * context);
      const high = Math.min(TALL, Math.sqrt(area)), wide = Math.min(inner, Math.max(MARK, area / high));
      return { high, drawn: [svg('rect', { x: LEFT, y, width: wide, height: Math.max(MARK, high), ...look, 'data-key': 'state' })] };
    }
    if (one.cut) return { high: TALL, drawn: [torn(y, inner)] };
    const high = Math.max(MARK, (TALL * keeps[one.kind](one)) / most);
    const indexer = one.indexDim ? Math.max(MARK, (TALL * one.indexDim) / (one.group ?? 1) / most) : 0;
    return { high: high + indexer, drawn: [
      svg('rect', { x: LEFT, y, width: inner, height: high, fill: one.readers ? 'none' : 'var(--y-grey-soft)', stroke: 'var(--y-line)',
        'stroke-width': 0.6, 'stroke-dasharray': one.readers ? '4 3' : null }),
      pieces(one, context).map(({ from, share }, piece) => svg('rect', { x: LEFT + from * inner, y, width: Math.max(MARK, share * inner),
        height: high, ...look, 'data-key': `${one.label}-${piece}` })),
      one.near ? svg('rect', { x: LEFT + inner * Math.max(0, 1 - one.near / context), y, width: Math.max(MARK, inner * Math.min(1, one.near / context)),
        height: high, ...look, 'data-key': `${one.label}-near` }) : null,
      indexer ? svg('rect', { x: LEFT, y: y + high, width: inner, height: indexer, fill: 'var(--y-orange)' }) : null,
    ] };
  }

  yaie.controlled('attention-kinds', {
    controls: () => [{ name: 'context', label: 'tokens of context', min: 9, max: 20, step: 1, value: 17, format: power }],
    draw(stage, { context }, data) {
      const tokens = 2 ** context, kinds = Object.values(data.kinds);
      const width = room(stage), inner = width - 2 * LEFT;
      const most = Math.max(...kinds.filter(({ kind, cut }) => keeps[kind] && !cut).map((one) => keeps[one.kind](one)));
      const drawn = [], found = {};
      let y = 4;
      for (const one of kinds) {
        const { bytes, flops } = around.kinds[one.kind](one, Math.min(tokens, one.window ?? Infinity));
        found[one.label] = bytes;
        const bound = flops / bytes > data.ridge;
        const says = `${show(bytes, 'bytes')}, ${digits(flops / bytes)} FLOP${digits(flops / bytes) === '1' ? '' : 's'} a byte${bound ? ': arithmetic' : ''}`;
        const named = isNarrow(stage) ? one.label : `${one.label} · ${one.model}`; // the table has the models, too
        const below = isNarrow(stage) || (named.length + says.length + 2) * 7.4 > inner; // the numbers' line
        const words = below ? lines(named, inner) : [named];
        words.forEach((line, at) => drawn.push(text(LEFT, y + 12 + 15 * at, line)));
        if (below) { drawn.push(text(LEFT, y + 12 + 15 * words.length, says, { bold: true })); y += 15 * words.length; }
        else drawn.push(text(LEFT + inner, y + 12, says, { bold: true, anchor: 'end' }));
        const { high, drawn: row } = strip(one, tokens, { inner, y: y + LABEL, most });
        drawn.push(row);
        y += LABEL + Math.max(high, 4) + GAP;
      }
      const [many, , latent] = kinds.map(({ label }) => found[label]);
      const compared = kinds[0].cut ? `keys and values for every head are ${show(many, 'bytes')} a layer; the latent is ${show(latent, 'bytes')}`
        : `a layer reads ${kinds.map(({ label, short }) => `${show(found[label], 'bytes')} (${short})`).join(', ')}`;
      const said = `After ${power(context)} tokens, ${compared}. Above ${data.ridge} FLOPs a byte arithmetic is the limit, not memory.`;
      stage.append(picture(width, y, said, drawn),
        legend([{ fill: 'var(--y-blue)' }, 'read for the new token'], [{ fill: 'var(--y-grey-soft)', stroke: 'var(--y-line)' }, 'kept, not read'],
          [{ fill: 'none', stroke: 'var(--y-line)', 'stroke-dasharray': '4 3' }, 'kept by another layer'],
          [{ fill: 'var(--y-orange)' }, 'read by the indexer']));
      return said;
    },
  });
})();
