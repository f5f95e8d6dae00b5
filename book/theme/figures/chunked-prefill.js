// A bar for each step, as high as the tokens that it computes or as the time that it takes; below, who gained a token by it.
'use strict';

const chunkedPrefill = (() => {
  /** Milliseconds of a step: straight lines between steps that were measured, [[tokens, ms], ...]. */
  function milliseconds(times, tokens) {
    const after = Math.max(1, Math.min(times.length - 1, times.findIndex(([most]) => most >= tokens)));
    const [[low, from], [high, to]] = [times[after - 1], times[after]];
    return from + ((tokens - low) * (to - from)) / (high - low);
  }

  return { milliseconds };
})();

(() => {
  const { svg, html } = yaie;
  const { room, isNarrow, picture } = yaie.stage;
  const { text, cell, axis, legend, tables, KINDS } = yaie.timeline;
  const [LEFT, RIGHT, ROW, TOP, HEIGHT] = [34, 50, 24, 32, 170];
  const FLOOR = TOP + HEIGHT;

  // The budget's line may run behind a number.
  const ON_PAPER = { stroke: 'var(--bg)', 'stroke-width': 4, 'paint-order': 'stroke' };

  const total = (step) => Object.values(step.tokens).reduce((sum, tokens) => sum + tokens, 0);
  const chunk = (step, { long, talkers }) => (step.drew.length > talkers.length && step.tokens[long] === 1
    ? 0 : step.tokens[long] ?? 0);

  /** What a bar's height says: its value for so many tokens, the marks beside it, and a value in words. */
  const WAYS = {
    tokens: () => ({ title: 'tokens in the step', of: (tokens) => tokens, marks: [0, 50, 100, 150], short: String, words: (value) => `${value} tokens` }),
    ms: ({ times }) => ({ title: 'ms of the step', of: (tokens) => chunkedPrefill.milliseconds(times, tokens), marks: [0, 10, 20, 30],
      short: (value) => Math.round(value), words: (value) => `${Math.round(value)} ms` }),
  };

  function bar(step, column, track, COLUMN, way) {
    const scale = HEIGHT / way.of(track.top), value = way.of(total(step));
    const all = value * scale, prompt = chunk(step, track) ? all - way.of(total(step) - chunk(step, track)) * scale : 0;
    const gap = COLUMN > 24 ? 4 : 1.5;
    const [x, width] = [LEFT + column * COLUMN + gap, COLUMN - 2 * gap];
    const mine = (part) => ({ 'data-key': `${part}-${column}`, 'data-thing': `${part === 'all' ? 'decode' : part} column-${column}` });
    const { 'stroke-width': _, ...look } = KINDS.prompt;
    return svg('g', {},
      svg('rect', { x, y: FLOOR - all + prompt, width, height: all - prompt, fill: 'var(--y-orange)', ...mine('decode') }),
      prompt ? svg('rect', { x, y: FLOOR - all, width, height: prompt, ...look, ...mine('prefill') }) : null,
      prompt > 60 ? text(x + width / 2, FLOOR - prompt / 2, track.long, { bold: true }) : null,
      text(x + width / 2, FLOOR - all - 5, way.short(value), { bold: true, ...ON_PAPER }));
  }

  function scale(track, COLUMN, way) {
    const y = (value) => FLOOR - (value * HEIGHT) / way.of(track.top), limit = track.budget && way.of(track.budget);
    const right = LEFT + track.columns * COLUMN;
    const drawn = svg('g', {},
      svg('path', { d: `M${LEFT} ${TOP}V${FLOOR}H${right}`, fill: 'none', stroke: 'currentColor' }));
    drawn.append(text(0, 12, way.title, { anchor: 'start', 'data-key': 'title' }));
    for (const mark of way.marks) drawn.append(text(LEFT - 6, y(mark) + 4, mark, { anchor: 'end' }));
    if (track.budget) {
      drawn.append(
        svg('path', { d: `M${LEFT} ${y(limit)}H${right}`, stroke: 'var(--y-red)', 'stroke-dasharray': '6 4', 'data-key': 'budget', 'data-thing': 'budget' }),
        text(right + 5, y(limit) - 2, 'budget', { anchor: 'start', 'data-key': 'budget-name', 'data-thing': 'budget' }),
        text(right + 5, y(limit) + 12, track.budget, { anchor: 'start', 'data-key': 'budget-size', 'data-thing': 'budget' }));
    }
    return drawn;
  }

  /** A cell where a request gained a token; for the long prompt, how much of it is computed. */
  function gains(name, row, steps, track, COLUMN) {
    const y = FLOOR + 26 + row * ROW;
    return svg('g', {}, text(LEFT - 14, y + 16, name, { bold: true, 'data-thing': `request-${name}` }), steps.map((step, column) => {
      const [x, width] = [LEFT + column * COLUMN + 1, COLUMN - 2];
      const mine = { 'data-key': `gain-${name}-${column}`, 'data-thing': `request-${name} column-${column}` };
      if (step.drew.includes(name)) return cell('answer', x, y, width, ROW - 4, name, mine);
      if (name !== track.long || !step.done) return null;
      return svg('g', mine, cell('prompt', x, y, width, ROW - 4), width > 22 ? text(x + width / 2, y + 15, step.done) : null);
    }));
  }

  /** How long the others waited for a token at most, and the long prompt for its first. */
  function waits(steps, track, way) {
    const values = steps.map((step) => way.of(total(step)));
    const first = steps.findIndex((step) => step.drew.includes(track.long));
    const waited = values.slice(track.before, first < 0 ? undefined : first + 1);
    const more = first < 0 ? 'more than ' : '';
    const nothing = waited.length === 0;
    return [track.label, way.words(Math.max(...values)), nothing ? '–' : `${more}${waited.length} step${waited.length === 1 ? '' : 's'}`,
      nothing ? '–' : `${more}${way.words(waited.reduce((sum, value) => sum + value, 0))}`];
  }

  /** At the end, all settings beside each other. */
  const compared = (track, { tracks }, way) => Object.values(tracks).map((each) => {
    const [label, ...rest] = waits(each.steps, each, way);
    return [each === track ? `▸ ${label}` : label, ...rest];
  });

  /** Tokens or time: what the bars' height is. */
  function settings(figure) {
    const height = html('select', {}, html('option', { value: 'tokens' }, 'tokens'), html('option', { value: 'ms' }, 'milliseconds'));
    height.onchange = () => {
      figure.used();
      figure.player.pause();
      figure.restart({ ...figure.data, height: height.value }, figure.index);
    };
    return [html('label', {}, 'Height ', height)];
  }

  yaie.stepped('chunked-prefill', {
    settings,
    draw(stage, step, track, index, { data }) {
      const way = WAYS[data.height ?? 'tokens'](data);
      const steps = track.steps.slice(0, index + 1);
      const names = [...track.talkers, track.long];
      const COLUMN = Math.min(40, (room(stage) - LEFT - RIGHT) / track.columns);
      const wide = LEFT + track.columns * COLUMN + RIGHT;
      const high = FLOOR + 30 + names.length * ROW;
      const drawn = picture(wide, high,
        `${way.title}, so far: ${steps.map((each) => way.short(way.of(total(each)))).join(', ')}. `
          + `In this step ${step.drew.join(', ')} gained a token; ${step.done} of ${track.prompt} `
          + `prompt tokens of ${track.long} are computed.`,
        scale(track, COLUMN, way), steps.map((each, column) => bar(each, column, track, COLUMN, way)),
        text(0, FLOOR + 20, 'step', { anchor: 'start' }),
        axis(LEFT, FLOOR + 10, COLUMN, track.columns, index),
        names.map((name, row) => gains(name, row, steps, track, COLUMN)));

      const narrow = isNarrow(stage), isEnd = index === track.steps.length - 1;
      stage.append(
        drawn,
        legend(['answer', 'gained a token', 'A'],
          ['prompt', `${track.long}'s prompt; below, how many of its tokens are computed`, track.long]),
        tables([
          narrow ? ['setting', 'others wait', `${track.long} after`, 'which are']
            : ['setting', `${track.talkers.join(', ')} wait at most`, `${track.long}'s first token after`, 'which are'],
          ...(isEnd ? compared(track, data, way) : [waits(steps, track, way)]),
        ]));
    },
  });
})();
