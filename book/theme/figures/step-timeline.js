// Host and device in three ways to run the same steps, side by side on one clock: who works on which step, who waits, and
// when a token is told. The order of the calls is recorded from the loops; each unit of time is a step of the figure.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const [HIGH, LANE, TOP] = [22, 84, 18];
  const LOOK = { plan: ['orange', 'P'], send: ['blue', 'L'], text: ['green', 'T'], wait: ['grey', ''], run: ['blue', ''] };

  const busy = (spans, now) => spans.reduce((sum, [, , begin, end]) => sum + Math.max(0, Math.min(end, now) - begin), 0);
  const told = (spans, now) => spans.filter(([name, , , end]) => name === 'text' && end <= now);

  /** The three ways, each with all that its host and its device do, and when it is through. */
  function ways(data) {
    return Object.entries(data.tracks).map(([key, track]) => {
      const { host, device, now } = track.steps.at(-1);
      return { key, label: track.label, host, device, end: now };
    });
  }

  function steps(data) {
    const all = ways(data), end = Math.max(...all.map((way) => way.end));
    const listed = (items) => `${items.slice(0, -1).join(', ')} and ${items.at(-1)}`;
    return Array.from({ length: end + 1 }, (_, now) => {
      const tokens = all.map((way) => told(way.host, now).length);
      const shares = all.map((way) => `${Math.round(100 * busy(way.device, now) / Math.max(1, Math.min(now, way.end)))}%`);
      const through = all.filter((way) => way.end === now).map((way) => ` ${way.label[0].toUpperCase()}${way.label.slice(1)}: through at ${now}.`);
      const say = now ? `At ${now} the clients have ${listed(tokens)} tokens; the device was busy for ${listed(shares)} of the time.${through.join('')}`
        : 'The same four tokens, three ways. Nothing is planned yet.';
      return { say, now, place: `time ${now} of ${end}` };
    });
  }

  /** A span of work up to now. */
  function span([name, step, begin, end], y, now, x, unit, key) {
    const width = (Math.min(end, now) - begin) * unit;
    if (width <= 0) return [];
    const [colour, letter] = LOOK[name];
    const look = name === 'wait' ? { fill: 'none', stroke: 'var(--y-line)', 'stroke-dasharray': '3 3' }
      : { fill: `var(--y-${colour}-soft)`, stroke: `var(--y-${colour})` };
    const left = x + begin * unit, whole = (end - begin) * unit;
    const words = whole >= 17 ? `${letter}${step}` : whole >= 8 ? letter : '';
    const mine = { 'data-thing': `step-${step} ${name}` };
    return [
      svg('rect', { x: left, y, width, height: HIGH, rx: 2, ...look, 'data-key': key, ...mine }),
      words && width >= whole / 2 && !['run', 'wait'].includes(name) ? text(left + whole / 2, y + 15.5, words, { anchor: 'middle', 'data-key': `${key}-name`, ...mine }) : null,
    ];
  }

  /** Where the device has nothing to do. */
  function idle(device, now, y, x, unit, key) {
    const ends = device.map(([, , , end]) => end).filter((end) => end <= now);
    const gaps = [0, ...ends].map((from, at) => [from, Math.min(now, device[at]?.[2] ?? now)]).filter(([from, to]) => to > from);
    return gaps.map(([from, to]) => svg('path', { d: `M${x + from * unit} ${y + HIGH / 2}H${x + to * unit}`, stroke: 'var(--y-red)', 'stroke-width': 3,
      'stroke-dasharray': '2 3', 'data-key': `${key}-${from}`, 'data-thing': 'idle' }));
  }

  function lane(way, row, now, { x, unit, width }) {
    const y = TOP + row * LANE, until = Math.min(now, way.end);
    const tokens = told(way.host, now);
    return [
      text(1, y + 12, way.label, { bold: true }),
      ...tokens.flatMap(([, step], at) => {
        const left = width - 8 - (4 - at) * 20;
        return [svg('g', { 'data-key': `token-${way.key}-${step}`, 'data-thing': `step-${step}` },
          svg('circle', { cx: left + 9, cy: y + 8, r: 8, fill: 'var(--y-green-soft)', stroke: 'var(--y-green)' }),
          text(left + 9, y + 12.5, step, { anchor: 'middle', bold: true }))];
      }),
      // A token is on its way from the text that is made of it: drawn there while the host works on it.
      ...way.host.filter(([name, , begin, end]) => name === 'text' && begin < now && end > now).map(([, step, , end]) =>
        svg('g', { 'data-key': `token-${way.key}-${step}` },
          svg('circle', { cx: x + end * unit, cy: y + 30, r: 8, fill: 'var(--y-green-soft)', stroke: 'var(--y-green)' }),
          text(x + end * unit, y + 34.5, step, { anchor: 'middle', bold: true }))),
      text(x - 6, y + 35, 'host', { anchor: 'end' }), text(x - 6, y + 62, 'device', { anchor: 'end' }),
      ...idle(way.device, until, y + 46, x, unit, `idle-${way.key}`),
      ...way.host.flatMap((one, at) => span(one, y + 19, now, x, unit, `host-${way.key}-${at}`)),
      ...way.device.flatMap((one, at) => span(one, y + 46, now, x, unit, `device-${way.key}-${at}`)),
    ];
  }

  yaie.stepped('step-timeline', {
    steps, together: true, alike: true,
    draw(stage, { now, say }, data) {
      const all = ways(data), end = Math.max(...all.map((way) => way.end));
      const width = room(stage), x = 54, unit = (width - x - 10) / end;
      const bottom = TOP + all.length * LANE - 10, here = x + now * unit;
      const marks = Array.from({ length: Math.floor(end / 10) + 1 }, (_, i) => i * 10);
      stage.append(picture(width, bottom + 20, say,
        ...marks.map((at) => svg('path', { d: `M${x + at * unit} ${TOP + 16}V${bottom}`, stroke: 'var(--y-line)', opacity: 0.35 })),
        ...all.flatMap((way, row) => lane(way, row, now, { x, unit, width })),
        ...marks.map((at) => text(x + at * unit, bottom + 14, at, { anchor: 'middle' })),
        svg('path', { d: `M${here} ${TOP + 14}V${bottom}`, stroke: 'currentColor', 'stroke-width': 2, 'data-key': 'now' })),
      legend([{ fill: 'var(--y-orange-soft)', stroke: 'var(--y-orange)' }, 'P plan'],
        [{ fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' }, isNarrow(stage) ? 'L launch; kernels' : 'L launch or replay; below, kernels'],
        [{ fill: 'var(--y-green-soft)', stroke: 'var(--y-green)' }, 'T text'],
        [{ fill: 'none', stroke: 'var(--y-line)', 'stroke-dasharray': '3 3' }, 'the host waits'],
        [{ fill: 'none', stroke: 'var(--y-red)', 'stroke-dasharray': '2 3' }, 'the device idles']));
    },
  });
})();
