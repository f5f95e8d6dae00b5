// One load of a warp: which bytes 32 threads ask for, and which sectors of 32 bytes move for that.
//
// Thread i asks for the `size` bytes at (offset + i · stride) · size. Memory moves in sectors of 32 bytes,
// aligned; four of them make a line of 128 bytes.
'use strict';

const coalescing = (() => {
  const THREADS = 32, SECTOR = 32, LINE = 128;

  /** Of one request: the pieces asked for, the sectors that they lie in, and what share of these is used. */
  function request({ stride, size, offset }) {
    const begins = Array.from({ length: THREADS }, (_, thread) => (offset + thread * stride) * size);
    const sectors = new Set();
    for (const begin of begins) {
      for (let at = begin; at < begin + size; at += 1) sectors.add(Math.floor(at / SECTOR));
    }
    const useful = new Set(begins).size * size; // threads that ask for the same number share it
    const first = Math.floor(begins[0] / LINE) * LINE;
    const last = Math.ceil((begins[THREADS - 1] + size) / LINE) * LINE;
    return {
      begins, first, span: last - first,
      sectors: [...sectors],
      useful,
      moved: sectors.size * SECTOR,
      efficiency: useful / (sectors.size * SECTOR),
    };
  }

  return { request, THREADS, SECTOR, LINE };
})();

(() => {
  const { svg } = yaie;
  const { room, picture, text, legend } = yaie.stage;
  const { request, THREADS, SECTOR, LINE } = coalescing;
  const LEFT = 4, TOP = 18, BAR = 142, HEIGHT = 34;
  const count = (value) => value.toLocaleString('en');

  function threads(load, x, inner) {
    const pitch = inner / THREADS, box = Math.min(16, pitch - 1.5);
    return load.begins.flatMap((begin, thread) => {
      const middle = LEFT + (thread + 0.5) * pitch;
      const numbered = thread % 8 === 0 || thread === THREADS - 1;
      const mine = { 'data-thing': `thread-${thread}` };
      return [
        svg('rect', { x: middle - box / 2, y: TOP, width: box, height: 16, rx: 2, fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)', ...mine }),
        numbered ? text(middle, TOP - 5, thread, { anchor: thread ? (thread === THREADS - 1 ? 'end' : 'middle') : 'start' }) : null,
        svg('line', { x1: middle, y1: TOP + 16, x2: x(begin + load.size / 2), y2: BAR, stroke: 'var(--y-blue)',
          'stroke-width': 0.8, opacity: 0.75, 'data-key': `asks-${thread}`, ...mine }),
      ];
    });
  }

  /** Sectors that move, with the bytes in them that a thread asked for. */
  function memory(load, x, inner) {
    const wide = SECTOR * inner / load.span;
    const moved = load.sectors.map((sector, index) => svg('rect', { x: x(sector * SECTOR), y: BAR, width: wide, height: HEIGHT,
      fill: 'var(--y-orange-soft)', stroke: wide > 4 ? 'var(--y-orange)' : 'none', 'data-key': `sector-${index}`,
      'data-thing': load.begins.flatMap((begin, thread) => (Math.floor(begin / SECTOR) === sector ? [`thread-${thread}`] : [])).join(' ') }));
    const used = load.begins.map((begin, thread) => svg('rect', { x: x(begin), y: BAR + 6,
      width: Math.max(load.size * inner / load.span, 1), height: HEIGHT - 12, fill: 'var(--y-blue)', 'data-key': `bytes-${thread}`,
      'data-thing': `thread-${thread}` }));
    return [
      svg('rect', { x: LEFT, y: BAR, width: inner, height: HEIGHT, fill: 'none', stroke: 'var(--y-line)' }),
      ...moved, ...used,
    ];
  }

  /** Addresses of lines, a few of them. */
  function addresses(load, x, inner) {
    const lines = load.span / LINE;
    const every = LINE * 2 ** Math.max(0, Math.ceil(Math.log2(lines / (inner < 500 ? 3 : 6))));
    const marks = [];
    for (let at = load.first; at <= load.first + load.span; at += every) {
      const anchor = at === load.first ? 'start' : at >= load.first + load.span ? 'end' : 'middle';
      marks.push(svg('line', { x1: x(at), x2: x(at), y1: BAR + HEIGHT, y2: BAR + HEIGHT + 5, stroke: 'currentColor' }),
        text(x(at), BAR + HEIGHT + 17, count(at), { anchor }));
    }
    return [...marks, text(LEFT, BAR + HEIGHT + 34, 'address in bytes')];
  }

  function say(load, bandwidth) {
    const sectors = load.sectors.length === 1 ? '1 sector' : `${load.sectors.length} sectors`;
    const share = Math.round(100 * load.efficiency);
    const rest = share === 100 ? `all of what moves is used, up to ${count(bandwidth)} GB/s on the H200`
      : `${share}% of what moves is used, so at most ${count(Math.round(bandwidth * load.efficiency))} of the `
        + `H200's ${count(bandwidth)} GB/s`;
    return `32 threads ask for ${count(load.useful)} different bytes. They lie in ${sectors}: `
      + `${count(load.moved)} bytes move, ${rest}.`;
  }

  yaie.controlled('coalescing', {
    plays: 'stride',
    controls: () => [
      { name: 'stride', label: 'apart', value: '1', options: [
        ['0', 'the same number'], ['1', '1 number'], ['2', '2 numbers'], ['3', '3 numbers'], ['4', '4 numbers'],
        ['8', '8 numbers'], ['16', '16 numbers'], ['32', '32 numbers']] },
      { name: 'size', label: 'a thread loads', value: '4', options: [
        ['2', '2 bytes, a bfloat16'], ['4', '4 bytes, a float'], ['8', '8 bytes, a float2'],
        ['16', '16 bytes, a float4']] },
      { name: 'offset', label: 'thread 0 begins at number', min: 0, max: 31, step: 1, value: 0 },
    ],
    draw(stage, values, data) {
      const size = Number(values.size);
      const load = { ...request({ stride: Number(values.stride), size, offset: values.offset }), size };
      const width = room(stage), inner = width - 2 * LEFT;
      const x = (address) => LEFT + (address - load.first) * inner / load.span;
      const said = say(load, data.bandwidth);
      stage.append(picture(width, BAR + HEIGHT + 40, said,
        memory(load, x, inner), threads(load, x, inner), addresses(load, x, inner)),
      legend([{ fill: 'var(--y-blue)' }, 'asked for'], [{ fill: 'var(--y-orange-soft)', stroke: 'var(--y-orange)' }, 'a sector that moves'],
        [{ fill: 'none', stroke: 'var(--y-line)' }, 'stays where it is']));
      return said;
    },
  });
})();
