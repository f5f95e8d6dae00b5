// A bar for each step, as high as the time that it takes; below, who gained a token by it.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture } = yaie.stage;
  const { text, cell, axis, legend, tables, KINDS } = yaie.timeline;
  const [LEFT, RIGHT, ROW, TOP, HEIGHT] = [34, 50, 24, 32, 170];
  const FLOOR = TOP + HEIGHT;

  // The budget's line may run behind a number.
  const ON_PAPER = { stroke: 'var(--bg)', 'stroke-width': 4, 'paint-order': 'stroke' };

  // Milliseconds of a step of the tutor, as measured (book/evidence/start_phases.json): for any step, for each decode, for each
  // token of a prompt.
  const MS = { step: 6.8, decode: 0.36, prompt: 0.116 };

  const total = (step) => Object.values(step.tokens).reduce((sum, tokens) => sum + tokens, 0);
  const chunk = (step, { long, talkers }) => (step.drew.length > talkers.length && step.tokens[long] === 1
    ? 0 : step.tokens[long] ?? 0);

  const took = (decodes, prompt) => MS.step + MS.decode * decodes + MS.prompt * prompt;
  const time = (step, track) => took(total(step) - chunk(step, track), chunk(step, track));
  const ms = (value) => `${Math.round(value)} ms`;

  /** The time of the longest step, which fills the height. */
  const longest = ({ top, talkers }) => took(talkers.length, top - talkers.length);

  function bar(step, column, track, COLUMN) {
    const scale = HEIGHT / longest(track);
    const [prompt, all, base] = [chunk(step, track) * MS.prompt * scale, time(step, track) * scale, MS.step * scale];
    const gap = COLUMN > 24 ? 4 : 1.5;
    const [x, width] = [LEFT + column * COLUMN + gap, COLUMN - 2 * gap];
    const mine = (part) => ({ 'data-key': `${part}-${column}`, 'data-thing': `${part === 'all' ? 'decode' : part} column-${column}` });
    const { 'stroke-width': _, ...look } = KINDS.prompt;
    return svg('g', {},
      svg('rect', { x, y: FLOOR - base, width, height: base, fill: 'var(--y-grey-soft)', stroke: 'var(--y-grey)', 'stroke-width': 0.8, ...mine('step') }),
      svg('rect', { x, y: FLOOR - all + prompt, width, height: all - prompt - base, fill: 'var(--y-orange)', ...mine('decode') }),
      prompt ? svg('rect', { x, y: FLOOR - all, width, height: prompt, ...look, ...mine('prefill') }) : null,
      prompt > 60 ? text(x + width / 2, FLOOR - all + prompt / 2 + 4, track.long, { bold: true }) : null,
      text(x + width / 2, FLOOR - all - 5, total(step), { bold: true, ...ON_PAPER }));
  }

  function scale(track, COLUMN) {
    const y = (value) => FLOOR - (value * HEIGHT) / longest(track);
    const budget = track.budget && took(track.talkers.length, track.budget - track.talkers.length);
    const right = LEFT + track.columns * COLUMN;
    const drawn = svg('g', {},
      svg('path', { d: `M${LEFT} ${TOP}V${FLOOR}H${right}`, fill: 'none', stroke: 'currentColor' }));
    drawn.append(text(0, 12, 'milliseconds; above a bar, the tokens in its step', { anchor: 'start' }));
    for (const value of [0, 10, 20]) drawn.append(text(LEFT - 6, y(value) + 4, value, { anchor: 'end' }));
    if (track.budget) {
      drawn.append(
        svg('path', { d: `M${LEFT} ${y(budget)}H${right}`, stroke: 'var(--y-red)', 'stroke-dasharray': '6 4', 'data-key': 'budget', 'data-thing': 'budget' }),
        text(right + 5, y(budget) - 2, 'budget', { anchor: 'start', 'data-key': 'budget-name', 'data-thing': 'budget' }),
        text(right + 5, y(budget) + 12, track.budget, { anchor: 'start', 'data-key': 'budget-size', 'data-thing': 'budget' }));
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
  function waits(steps, track) {
    const first = steps.findIndex((step) => step.drew.includes(track.long));
    const waited = steps.slice(track.before, first < 0 ? undefined : first + 1);
    const more = first < 0 ? 'more than ' : '';
    const nothing = waited.length === 0;
    return [track.label, ms(Math.max(...steps.map((step) => time(step, track)))), nothing ? '–' : `${more}${steps_(waited.length)}`,
      nothing ? '–' : `${more}${ms(waited.reduce((sum, step) => sum + time(step, track), 0))}`];
  }

  const steps_ = (number) => `${number} step${number === 1 ? '' : 's'}`;

  /** At the end, all settings beside each other. */
  const compared = (track, tracks) => tracks.map((one) => waits(one.steps, one)).map(([label, ...rest]) => (
    [label === track.label ? `▸ ${label}` : label, ...rest]));

  yaie.stepped('chunked-prefill', {
    draw(stage, step, track, index, figure) {
      const steps = track.steps.slice(0, index + 1);
      const names = [...track.talkers, track.long];
      const COLUMN = Math.min(40, (room(stage) - LEFT - RIGHT) / track.columns);
      const wide = LEFT + track.columns * COLUMN + RIGHT;
      const high = FLOOR + 30 + names.length * ROW;
      const drawn = picture(wide, high,
        `Tokens computed in each step so far: ${steps.map(total).join(', ')}. `
          + `In this step ${step.drew.join(', ')} gained a token; ${step.done} of ${track.prompt} `
          + `prompt tokens of ${track.long} are computed.`,
        scale(track, COLUMN), steps.map((each, column) => bar(each, column, track, COLUMN)),
        text(0, FLOOR + 20, 'step', { anchor: 'start' }),
        axis(LEFT, FLOOR + 10, COLUMN, track.columns, index),
        names.map((name, row) => gains(name, row, steps, track, COLUMN)));

      const narrow = isNarrow(stage), isEnd = index === track.steps.length - 1;
      stage.append(
        drawn,
        legend(['answer', 'gained a token', 'A'],
          ['prompt', `${track.long}'s prompt; below, how many of its tokens are computed`, track.long]),
        yaie.stage.legend([{ fill: 'var(--y-grey-soft)', stroke: 'var(--y-grey)' }, 'what every step takes']),
        tables([
          narrow ? ['setting', 'others wait', `${track.long} after`, 'which take']
            : ['setting', `${track.talkers.join(', ')} wait at most`, `${track.long}'s first token after`, 'which take'],
          ...(isEnd ? compared(track, Object.values(figure.data.tracks)) : [waits(steps, track)]),
        ]));
    },
  });
})();
