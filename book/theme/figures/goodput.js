// Requests arrive at random at one engine: how many get their first token, and their next ones, in time?
//
// A step takes base + each · (requests that decode) + token · (prompt tokens it computes), and computes at most `budget`
// tokens, those that decode first. Requests arrive independently (Poisson); their lengths are spread evenly from half to
// one and a half times the mean.
'use strict';

const goodput = (() => {
  /** Numbers in [0, 1) from a seed, the same in every browser (Park and Miller 1988). */
  function numbers(seed) {
    let state = seed;
    return () => { state = (state * 48271) % 2147483647; return state / 2147483647; };
  }

  /** What each request got. Times in seconds; rate in requests a second. */
  function simulate({ rate, count, prompt, answer, base, each, token, budget, most, seed = 7 }) {
    const random = numbers(seed);
    const length = (mean) => Math.max(1, Math.round(mean * (0.5 + random())));
    const all = [];
    let clock = 0;
    for (let i = 0; i < count; i += 1) {
      clock += -Math.log(1 - random()) / rate;
      all.push({ arrived: clock, prompt: length(prompt), answer: length(answer), done: 0, said: 0 });
    }
    // All that decode get a token in each step, so a request's last step is known once its prompt is computed.
    const filling = [], ends = new Map();
    const lasted = []; // seconds of each step
    let decoding = 0, next = 0, now = 0, over = 0;
    for (let step = 0; over < count; step += 1) {
      while (next < count && all[next].arrived <= now && filling.length + decoding < most) filling.push(all[next++]);
      if (!filling.length && !decoding) { now = all[next].arrived; lasted.push(0); continue; }
      let left = Math.max(0, budget - decoding), filled = 0;
      const last = [];
      while (filling.length && left) {
        const [one] = filling, chunk = Math.min(left, one.prompt - one.done);
        one.done += chunk; left -= chunk; filled += chunk;
        if (one.done === one.prompt) last.push(filling.shift());
      }
      lasted.push(base + each * decoding + token * filled);
      now += lasted[step];
      for (const one of last) {
        one.first = now;
        one.since = step + 1;
        const end = step + one.answer - 1;
        ends.set(end, [...(ends.get(end) ?? []), one]);
      }
      const ended = ends.get(step) ?? [];
      for (const one of ended) {
        one.ended = now;
        one.said = one.answer;
        one.longest = Math.max(0, ...lasted.slice(one.since)); // the longest wait for one of its tokens after the first
      }
      ends.delete(step);
      over += ended.length;
      decoding += last.length - ended.length;
    }
    return all;
  }

  const share = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];

  /** What each of some requests waited: for its first token, for its others on average, for one of them at most. */
  const times = (some) => ({
    waits: some.map((one) => one.first - one.arrived),
    paces: some.map((one) => (one.ended - one.first) / Math.max(1, one.answer - 1)),
    gaps: some.map((one) => one.longest),
  });

  /** What a run gave, before any limit: percentiles and throughput. The first tenth warms up and is not counted; the clock runs
   *  from the first arrival that counts to the last, and `finished` are those that end meanwhile. */
  function measured(all) {
    const counted = all.slice(Math.floor(all.length / 10));
    const { waits, paces, gaps } = times(counted);
    const [from, to] = [counted[0].arrived, counted.at(-1).arrived], seconds = to - from;
    const finished = all.filter((one) => one.ended > from && one.ended <= to);
    const of = (numbers) => {
      const sorted = Float64Array.from(numbers).sort();
      return { half: share(sorted, 0.5), most: share(sorted, 0.99) };
    };
    return { waits, paces, gaps, ttft: of(waits), tpot: of(paces), gap: of(gaps), counted: counted.length, seconds,
      finished: times(finished), throughput: finished.length / seconds };
  }

  /** And which share of its requests kept both limits, and how many of these finished a second. The second limit is on a request's
   *  mean time between tokens, or with `longest` on the longest of these times. */
  function within(run, { first, between, longest = false }) {
    const inTime = ({ waits, paces, gaps }) => {
      const tested = longest ? gaps : paces;
      return waits.filter((wait, at) => wait <= first && tested[at] <= between).length;
    };
    return { ...run, kept: inTime(run) / run.counted, goodput: inTime(run.finished) / run.seconds };
  }

  const summary = (all, limits) => within(measured(all), limits);

  return { numbers, simulate, measured, within, summary };
})();

(() => {
  const { svg, html } = yaie;
  const { room, picture, text } = yaie.stage;
  const COUNT = 3000;
  const RATES = [5, 10, 15, 20, 22, 24, 25, 26, 27, 28, 29, 30, 32, 34, 36, 40, 50, 60];
  const HEIGHT = 262, LEFT = 44, FOOT = 40, TOP = 26;
  const kept = new Map(); // a control asks for the same runs again and again
  const digits = (value) => Number(value.toPrecision(3)).toLocaleString('en');
  const milli = (seconds) => (seconds < 1 ? `${Math.round(1000 * seconds)} ms` : `${digits(seconds)} s`);

  function run(data, { prompt, answer }, rate) {
    const key = `${prompt} ${answer} ${rate}`;
    if (!kept.has(key)) {
      kept.set(key, goodput.measured(goodput.simulate({ ...data.engine, rate, count: COUNT, prompt: 2 ** prompt, answer: 2 ** answer })));
    }
    return kept.get(key);
  }

  function line(points, x, y, style, key) {
    const path = points.map(([rate, value], i) => `${i ? 'L' : 'M'}${x(rate).toFixed(1)} ${y(value).toFixed(1)}`).join('');
    return svg('path', { d: path, fill: 'none', 'stroke-width': 2.5, 'data-key': key, 'data-thing': key, ...style });
  }

  yaie.controlled('goodput', {
    plays: 'rate',
    controls: () => [
      { name: 'rate', label: 'requests a second', min: 0, max: RATES.length - 1, step: 1, value: 3, format: (at) => RATES[at] },
      { name: 'first', label: 'first token within', min: 0.1, max: 2, step: 0.1, value: 0.5, format: milli },
      { name: 'between', label: 'next tokens within', min: 0.01, max: 0.1, step: 0.005, value: 0.03, format: milli },
      { name: 'counts', label: 'counted', options: [['mean', 'a mean of them'], ['longest', 'the longest']], value: 'mean' },
      { name: 'prompt', label: 'prompt tokens', min: 8, max: 12, step: 1, value: 10, format: (value) => (2 ** value).toLocaleString('en') },
      { name: 'answer', label: 'answer tokens', min: 5, max: 8, step: 1, value: 7, format: (value) => (2 ** value).toLocaleString('en') },
    ],
    draw(stage, values, data) {
      const longest = values.counts === 'longest', limits = { first: values.first, between: values.between, longest };
      const curve = RATES.map((rate) => [rate, goodput.within(run(data, values, rate), limits)]);
      const [rate, here] = curve[values.rate];
      const width = room(stage), top = RATES[RATES.length - 1];
      const x = (value) => LEFT + (value / top) * (width - LEFT - 12);
      const y = (value) => HEIGHT - FOOT - (value / top) * (HEIGHT - FOOT - TOP);
      const marks = [0, 20, 40, 60].map((value) => [
        text(x(value), HEIGHT - FOOT + 16, value, { anchor: 'middle' }), text(LEFT - 6, y(value) + 4, value, { anchor: 'end' }),
        svg('line', { x1: LEFT, x2: width - 12, y1: y(value), y2: y(value), stroke: 'var(--y-line)' })]);
      stage.append(picture(width, HEIGHT, 'Requests a second that finish, and that finish in time, against those that arrive', marks.flat(),
        text(4, 14, 'requests a second'), text((LEFT + width - 12) / 2, HEIGHT - 6, 'requests that arrive a second', { anchor: 'middle' }),
        line([[0, 0], [top, top]], x, y, { stroke: 'currentColor', 'stroke-dasharray': '2 5', 'stroke-width': 1 }, 'offered'),
        line([[0, 0], ...curve.map(([at, one]) => [at, one.throughput])], x, y, { stroke: 'var(--y-blue)', 'stroke-dasharray': '7 4' }, 'throughput'),
        line([[0, 0], ...curve.map(([at, one]) => [at, one.goodput])], x, y, { stroke: 'var(--y-green)' }, 'goodput'),
        svg('line', { x1: x(rate), x2: x(rate), y1: TOP, y2: HEIGHT - FOOT, stroke: 'currentColor', 'data-key': 'now' }),
        text(x(50) - 6, y(50) - 4, 'arrive', { anchor: 'end' }),
        text(width - 14, y(curve.at(-1)[1].throughput) - 7, 'finish (dashed)', { anchor: 'end' }),
        text(width - 14, y(curve.at(-1)[1].goodput) - 7, 'finish in time', { anchor: 'end', bold: true })));
      const cell = (value, limit) => html('td', { class: value > limit ? 'over' : null }, milli(value), value > limit ? ' (over)' : null);
      const row = (name, { half, most }, limit) => html('tr', {}, html('th', { scope: 'row' }, name), cell(half, limit), cell(most, limit),
        html('td', {}, milli(limit)));
      stage.append(html('table', { class: 'yg' },
        html('thead', {}, html('tr', {}, html('td', {}), html('th', { scope: 'col' }, 'median'), html('th', { scope: 'col' }, '99th percentile'), html('th', { scope: 'col' }, 'limit'))),
        html('tbody', {}, row('time to first token', here.ttft, limits.first), row(longest ? 'longest time between tokens' : 'mean time between tokens', longest ? here.gap : here.tpot, limits.between))));
      return `Of ${COUNT.toLocaleString('en')} requests, ${rate} of which arrive each second, ${here.counted.toLocaleString('en')} count: the first tenth warms up. `
        + `${digits(here.throughput)} finish a second, and ${Math.round(100 * here.kept)}% are in time.`;
    },
  });
})();
