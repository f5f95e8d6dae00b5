// A pipeline of four stages: what each computes when, for a prompt and for a decode step that are cut, and for several
// batches in flight. A unit is the time that a stage needs for the whole prompt, or for reading its weights once.
'use strict';

const stages = (() => {
  const STAGES = 4;
  const WINDOW = 12; // units that are shown of batches in flight, which go on

  /** What the stages do: { cells: [{ stage, part, start, long }], total, busy }, busy: the share of the stages' time. */
  function plan(kind, parts) {
    if (kind === 'flight') return flight(parts);
    const long = kind === 'prompt' ? 1 / parts : 1; // a part of a decode step reads all weights of the stage
    const cells = Array.from({ length: STAGES * parts }, (_, at) => {
      const [stage, part] = [Math.floor(at / parts), at % parts];
      return { stage, part, start: (stage + part) * long, long };
    });
    const steps = parts + STAGES - 1;
    return { cells, total: steps * long, busy: parts / steps };
  }

  /** Batches that decode, once all are under way: a batch enters stage 0 again when its token is there. */
  function flight(batches) {
    const round = Math.max(STAGES, batches), cells = [];
    for (let stage = 0; stage < STAGES; stage += 1) {
      for (let start = 0; start < WINDOW; start += 1) {
        const part = (((start - stage) % round) + round) % round;
        if (part < batches) cells.push({ stage, part, start, long: 1 });
      }
    }
    return { cells, total: WINDOW, busy: batches / round, round };
  }

  return { STAGES, WINDOW, plan };
})();

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const { hatching } = yaie.timeline;
  const { STAGES, plan } = stages;
  const [TOP, HIGH, ROW, FOOT, MOST] = [6, 32, 40, 24, 16];
  const LOOKS = ['blue', 'orange', 'green', 'purple'].map((name) => ({ fill: `var(--y-${name}-soft)`, stroke: `var(--y-${name})` }));
  const KINDS = [['prompt', 'a prompt, cut'], ['step', 'a decode step, cut'], ['flight', 'batches that decode']];
  const percent = (share) => `${Math.round(100 * share)}%`;
  const units = (value) => `${Number(value.toPrecision(3))} unit${value === 1 ? '' : 's'}`;

  function say(kind, parts, { total, busy, round }) {
    const bubble = busy < 1 ? `The bubble is ${percent(1 - busy)} of the stages' time` : 'No stage waits';
    const cut = parts === 1 ? 'in one piece' : `in ${parts} microbatches`;
    if (kind === 'prompt') {
      return `A prompt ${cut} takes ${units(total)} on four stages, ${parts === 1 ? 'as on one device' : `${percent(total / STAGES)} of the 4 on one device`}. ${bubble}.`;
    }
    if (kind === 'step') {
      return `A decode step ${cut} takes ${units(total)}, ${parts === 1 ? 'as on one device' : 'since each stage reads its weights again for each; in one piece it takes 4'}. ${bubble}.`;
    }
    const among = parts === 1 ? 'One batch is' : `${parts} batches are`;
    return `${among} in flight. ${bubble}. Each batch has a token every ${units(round)}${round === STAGES ? ', as on one device' : ', as it waits for the others'}: `
      + `${parts === 1 ? 'a step' : `${parts} steps`} in ${units(round)}, where one device makes ${Number((round / STAGES).toPrecision(3))}.`;
  }

  yaie.controlled('stages', {
    plays: 'parts',
    controls: () => [
      { name: 'parts', label: 'pieces or batches', min: 1, max: MOST, step: 1, value: 4 },
      { name: 'kind', label: 'stages run', options: KINDS, value: 'step' },
    ],
    draw(stage, { parts, kind }) {
      const found = plan(kind, parts), said = say(kind, parts, found);
      const width = room(stage), left = isNarrow(stage) ? 18 : 62, right = width - 8;
      // A prompt in one piece is the longest, a decode step in sixteen; each has a scale of its own that stays.
      const span = { prompt: STAGES, step: MOST + STAGES - 1, flight: stages.WINDOW }[kind];
      const x = (time) => left + (time / span) * (right - left), height = TOP + STAGES * ROW;
      const cell = ({ stage: row, part, start, long }, at) => {
        const [from, wide, y] = [x(start), x(long) - x(0), TOP + row * ROW];
        return svg('g', { 'data-key': `cell-${row}-${kind === 'flight' ? at : part}`, 'data-thing': `piece-${part}` },
          svg('rect', { x: from + 0.5, y, width: Math.max(1.5, wide - 1), height: HIGH, ...LOOKS[part % LOOKS.length] }),
          wide > 16 ? text(from + wide / 2, y + 21, part, { anchor: 'middle', bold: true }) : null);
      };
      const ticks = { prompt: [0, 1, 2, 3, 4], step: [0, 4, 8, 12, 16, 19], flight: [0, 4, 8, 12] }[kind];
      stage.append(picture(width, height + FOOT, said,
        Array.from({ length: STAGES }, (_, row) => [
          text(left - 6, TOP + row * ROW + 21, isNarrow(stage) ? row : `stage ${row}`, { anchor: 'end' }),
          svg('rect', { x: left, y: TOP + row * ROW, width: x(found.total) - left, height: HIGH, fill: 'none', stroke: 'var(--y-grey)', 'stroke-dasharray': '2 3', 'data-key': `row-${row}` }),
          svg('g', { 'data-key': `idle-${row}`, 'data-thing': 'bubble' }, hatching(left, TOP + row * ROW, x(found.total) - left, HIGH, 8))]),
        found.cells.map((one) => svg('rect', { x: x(one.start), y: TOP + one.stage * ROW, width: x(one.long) - x(0), height: HIGH, fill: 'var(--bg)' })),
        found.cells.map(cell),
        ticks.map((time) => text(x(time), height + 12, time || '0', { anchor: time === ticks.at(-1) ? 'end' : time ? 'middle' : 'start', 'data-key': `tick-${kind}-${time}` }))),
      legend([LOOKS[0], 'a piece or a batch, by its number'], [{ fill: 'none', stroke: 'var(--y-grey)', 'stroke-dasharray': '2 3' }, 'the stage waits: the bubble (hatched)']));
      return said;
    },
  });
})();
