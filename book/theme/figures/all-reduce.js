// An all-reduce on a machine of up to 16 ranks: the transfers, round by round, and what they cost.
'use strict';

// The same model as yaie/bench/collectives.py, which explains it; a test compares the two.
const allReduce = (() => {
  const SWITCH = -1;
  const range = (count) => Array.from({ length: count }, (_, index) => index);
  const modulo = (number, ranks) => ((number % ranks) + ranks) % ranks;
  const pairs = (ranks) => range(ranks).flatMap((a) => range(ranks).filter((b) => b !== a).map((b) => [a, b]));

  /** A transfer is [source, target, part or null for all, whether the target adds it]. */
  const ROUNDS = {
    ring(ranks) {
      const turns = range(ranks - 1);
      const around = (shift, adds) => turns.map((turn) => range(ranks).map((rank) =>
        [rank, (rank + 1) % ranks, modulo(rank + shift - turn, ranks), adds]));
      return [...around(-1, true), ...around(0, false)];
    },
    tree(ranks) {
      const up = [];
      for (let reach = 1; reach < ranks; reach *= 2) {
        up.push(range(ranks).filter((rank) => rank % (2 * reach) === reach).map((rank) => [rank, rank - reach]));
      }
      return [
        ...up.map((level) => level.map(([child, parent]) => [child, parent, null, true])),
        ...up.toReversed().map((level) => level.map(([child, parent]) => [parent, child, null, false])),
      ];
    },
    one_shot: (ranks) => [pairs(ranks).map(([a, b]) => [a, b, null, true])],
    two_shot: (ranks) => [
      pairs(ranks).map(([a, b]) => [a, b, b, true]),
      pairs(ranks).map(([a, b]) => [a, b, a, false]),
    ],
  };
  const rounds = (algorithm, ranks) => ROUNDS[algorithm](ranks);

  /** The stations of a transfer: ranks, and the switch. */
  function way([source, target], { ranks, wires }) {
    if (wires === 'switch') return [source, SWITCH, target];
    const distance = modulo(target - source, ranks);
    const [step, hops] = 2 * distance <= ranks ? [1, distance] : [-1, ranks - distance];
    return range(hops + 1).map((hop) => modulo(source + step * hop, ranks));
  }

  /** { latency, bytes } of a round, in seconds: machine is { ranks, latency, bandwidth, wires }. */
  function cost(transfers, numBytes, machine) {
    const load = new Map();
    let hops = 0;
    for (const transfer of transfers) {
      const stations = way(transfer, machine);
      hops = Math.max(hops, machine.wires === 'cables' ? stations.length - 1 : 1);
      stations.slice(1).forEach((to, index) => {
        const link = `${stations[index]}>${to}`;
        load.set(link, (load.get(link) ?? 0) + (transfer[2] === null ? machine.ranks : 1));
      });
    }
    const busiest = Math.max(0, ...load.values()) * numBytes / machine.ranks;
    return { latency: hops * machine.latency, bytes: busiest / machine.bandwidth };
  }

  /** Of a whole all-reduce: its rounds, their costs, and the sums of these. */
  function run(algorithm, numBytes, machine) {
    const all = rounds(algorithm, machine.ranks);
    const costs = all.map((transfers) => cost(transfers, numBytes, machine));
    const sum = (name) => costs.reduce((total, one) => total + one[name], 0);
    return { rounds: all, costs, latency: sum('latency'), bytes: sum('bytes'), seconds: sum('latency') + sum('bytes') };
  }

  /** Bytes that each rank sends. */
  function bytesSent(algorithm, numBytes, ranks) {
    const sent = range(ranks).map(() => 0);
    for (const [source, , part] of rounds(algorithm, ranks).flat()) sent[source] += part === null ? numBytes : numBytes / ranks;
    return sent;
  }

  /** How many parts of the sum are complete on each rank when so many rounds have ended. */
  function complete(all, ended, ranks) {
    const whole = 2 ** ranks - 1;
    let held = range(ranks).map((rank) => range(ranks).map(() => 2 ** rank));
    for (const transfers of all.slice(0, ended)) {
      const before = held;
      held = held.map((parts) => [...parts]);
      for (const [source, target, part, adds] of transfers) {
        for (const one of part === null ? range(ranks) : [part]) {
          held[target][one] = before[source][one] | (adds ? held[target][one] : 0);
        }
      }
    }
    return held.map((parts) => parts.filter((summands) => summands === whole).length);
  }

  return { SWITCH, rounds, way, cost, run, bytesSent, complete, range };
})();

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const { hatching } = yaie.timeline;
  const NAMES = { ring: 'ring', tree: 'tree', one_shot: 'one-shot', two_shot: 'two-shot' };
  const STOPS = 120; // of the time: four in each of a ring's 30 rounds
  const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB'];
  const LATENCY = { fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' };
  const BYTES = { fill: 'var(--y-orange-soft)', stroke: 'var(--y-orange)' };
  const KEYS = [
    [{ fill: 'var(--y-blue)', x: 4.5, y: 2.5, width: 9, height: 9, rx: 4.5 }, 'added where it arrives'],
    [{ fill: 'var(--y-orange)', x: 5, y: 3, width: 8, height: 8 }, 'replaces what is there'],
    [{ fill: 'none', stroke: 'var(--y-line)', x: 2.5, y: 0.5, width: 13, height: 13, rx: 6.5 }, 'parts of the sum that are complete'],
  ];

  function size(bytes) {
    const unit = Math.min(3, Math.floor(Math.log2(Math.max(bytes, 1)) / 10));
    const value = bytes / 1024 ** unit;
    return `${value.toLocaleString('en', { maximumFractionDigits: value < 10 ? 1 : 0 })} ${BYTE_UNITS[unit]}`;
  }
  function time(seconds) {
    const [value, unit] = seconds < 1e-3 ? [seconds * 1e6, 'µs'] : seconds < 1 ? [seconds * 1e3, 'ms'] : [seconds, 's'];
    return `${value.toLocaleString('en', { maximumFractionDigits: value < 100 ? 1 : 0 })} ${unit}`;
  }

  /** Where things stand: the machine beside the bars, on a phone above them. */
  function layout(stage) {
    const width = room(stage);
    return isNarrow(stage)
      ? { width, height: 350, spot: 11, radius: 82, centre: [width / 2, 108], clock: 228, bars: { x: 2, y: 240, row: 22, width: width - 4 } }
      : { width, height: 316, spot: 13, radius: 112, centre: [150, 144], clock: 308, bars: { x: 312, y: 40, row: 48, width: width - 314 } };
  }

  /** Where a rank or the switch is drawn. */
  function place(station, ranks, { centre: [x, y], radius }, further = 0) {
    if (station === allReduce.SWITCH) return [x, y];
    const angle = 2 * Math.PI * station / ranks - Math.PI / 2;
    return [x + (radius + further) * Math.cos(angle), y + (radius + further) * Math.sin(angle)];
  }

  /** The point at a share of a way, whose links are passed one after the other. */
  function along(stations, ranks, share, laid) {
    const links = stations.length - 1;
    const index = Math.min(links - 1, Math.floor(share * links));
    const [from, to] = [place(stations[index], ranks, laid), place(stations[index + 1], ranks, laid)];
    const rest = share * links - index;
    return [from[0] + (to[0] - from[0]) * rest, from[1] + (to[1] - from[1]) * rest];
  }

  function wiring({ ranks, wires }, laid) {
    const ends = wires === 'switch' ? allReduce.range(ranks).map((rank) => [rank, allReduce.SWITCH])
      : allReduce.range(ranks).map((rank) => [rank, (rank + 1) % ranks]);
    return ends.map(([a, b]) => {
      const [[x1, y1], [x2, y2]] = [place(a, ranks, laid), place(b, ranks, laid)];
      return svg('line', { x1, y1, x2, y2, stroke: 'var(--y-line)' });
    });
  }

  function rankSpot(rank, ranks, done, laid) {
    const [[x, y], [nameX, nameY]] = [place(rank, ranks, laid), place(rank, ranks, laid, laid.spot + 11)];
    const whole = done === ranks, mine = { 'data-thing': `rank-${rank}` };
    return [
      svg('circle', { cx: x, cy: y, r: laid.spot, fill: whole ? 'var(--y-green-soft)' : 'var(--bg)',
        stroke: whole ? 'var(--y-green)' : 'var(--y-line)', 'stroke-width': whole ? 3 : 1, 'data-key': `rank-${rank}`, ...mine }),
      text(x, y + 4, done, { anchor: 'middle', bold: whole, 'data-key': `done-${rank}`, ...mine }),
      text(nameX, nameY + 4, rank, { anchor: 'middle', ...mine }),
    ];
  }

  /** How far a run is at a share (0 to 1) of its time: rounds that have ended, and the share of the one under way. */
  function progress(run, share) {
    if (share >= 1) return { ended: run.rounds.length, within: 0 };
    const spans = run.costs.map((one) => one.latency + one.bytes);
    let ended = 0, begin = 0;
    const now = share * run.seconds * (1 + 1e-12); // a round that ends now has ended
    while (ended < spans.length - 1 && now >= begin + spans[ended]) begin += spans[ended++];
    return { ended, within: Math.min(1, Math.max(0, (now - begin) / spans[ended])) };
  }

  /** A transfer on its way. What goes around a ring is the same part in all rounds. */
  function dot(transfer, round, within, algorithm, machine, laid) {
    const [source, target, part, adds] = transfer;
    const [x, y] = along(allReduce.way(transfer, machine), machine.ranks, within, laid);
    const mine = { 'data-key': algorithm === 'ring' ? `part-${part}` : `way-${round}-${source}-${target}`, 'data-thing': `from-${source}` };
    return adds ? svg('circle', { cx: x, cy: y, r: 4.5, fill: 'var(--y-blue)', ...mine })
      : svg('rect', { x: x - 4, y: y - 4, width: 8, height: 8, fill: 'var(--y-orange)', ...mine });
  }

  /** The machine at a share of the whole time. */
  function machinePicture(run, algorithm, machine, share, laid) {
    const { ranks, wires } = machine;
    const { centre: [x, y] } = laid;
    const { ended, within } = progress(run, share);
    const done = allReduce.complete(run.rounds, ended, ranks);
    const which = ended < run.rounds.length ? `round ${ended + 1} of ${run.rounds.length}` : 'done';
    return [
      wiring(machine, laid),
      wires === 'switch' ? svg('rect', { x: x - 27, y: y - 12, width: 54, height: 24, rx: 4, fill: 'var(--bg)', stroke: 'var(--y-line)' }) : null,
      wires === 'switch' ? text(x, y + 4, 'switch', { anchor: 'middle' }) : null,
      (run.rounds[ended] ?? []).map((transfer) => dot(transfer, ended, within, algorithm, machine, laid)),
      allReduce.range(ranks).map((rank) => rankSpot(rank, ranks, done[rank], laid)),
      text(x, laid.clock, `${time(share * run.seconds)}, ${which}`, { anchor: 'middle', bold: true }),
    ];
  }

  /** A bar for each algorithm: what it waits for latencies, and what for bytes. */
  function bars(runs, chosen, laid) {
    const { x, y: top, row, width } = laid.bars;
    const most = Math.max(...Object.values(runs).map((run) => run.seconds));
    const [left, high] = [x + 82, Math.min(24, row - 5)];
    const long = (seconds) => (width - 82 - 74) * seconds / most;
    const foot = top + 4 * row + (row > 30 ? 6 : 2);
    return [
      Object.entries(runs).map(([name, run], index) => {
        const y = top + index * row, bold = name === chosen, mine = { 'data-thing': `algorithm-${name}` };
        const [begin, wait, send] = [left + long(run.latency), long(run.latency), long(run.bytes)];
        return [
          text(left - 6, y + high / 2 + 4.5, `${bold ? '▸ ' : ''}${NAMES[name]}`, { anchor: 'end', bold, ...mine }),
          svg('rect', { x: left, y, width: wait, height: high, ...LATENCY, 'data-key': `latency-${name}`, ...mine }),
          svg('rect', { x: begin, y, width: send, height: high, ...BYTES, 'data-key': `bytes-${name}`, ...mine }),
          send > 3 ? hatching(begin, y, send, high) : null,
          text(left + long(run.seconds) + 6, y + high / 2 + 4.5, time(run.seconds), { bold, 'data-key': `time-${name}`, ...mine }),
        ];
      }),
      svg('rect', { x: x + 8, y: foot, width: 16, height: 13, ...LATENCY }),
      text(x + 29, foot + 11, 'latency'),
      svg('rect', { x: x + 92, y: foot, width: 16, height: 13, ...BYTES }),
      hatching(x + 92, foot, 16, 13),
      text(x + 113, foot + 11, 'bytes on the busiest link'),
    ];
  }

  yaie.controlled('all-reduce', {
    plays: 'at',
    controls: () => [
      { name: 'algorithm', label: 'algorithm', options: Object.entries(NAMES), value: 'ring' },
      { name: 'wires', label: 'wires', options: [['switch', 'a switch'], ['cables', 'a ring of cables']], value: 'switch' },
      { name: 'ranks', label: 'ranks', min: 2, max: 16, step: 1, value: 16 },
      { name: 'size', label: 'tensor', min: 10, max: 30, step: 1, value: 13, format: (power) => size(2 ** power) },
      { name: 'latency', label: 'latency', min: 0.5, max: 20, step: 0.5, value: 2, format: (us) => `${us} µs` },
      { name: 'bandwidth', label: 'bandwidth', min: 10, max: 900, step: 10, value: 400, format: (rate) => `${rate} GB/s` },
      { name: 'at', label: 'time', min: 0, max: STOPS, step: 1, value: Math.round(0.15 * STOPS), format: (stop) => `${Math.round(100 * stop / STOPS)}%` },
    ],
    // The picture has one height; what is said is longest for one of these.
    tallest: () => Object.keys(NAMES).flatMap((algorithm) => [13, 19, 30].map((power) => ({ algorithm, size: power, wires: 'cables', latency: 12.5 }))),
    draw(stage, { algorithm, wires, ranks, size: power, latency, bandwidth, at }) {
      const machine = { ranks, wires, latency: latency / 1e6, bandwidth: bandwidth * 1e9 };
      const numBytes = 2 ** power;
      const runs = Object.fromEntries(Object.keys(NAMES).map((name) => [name, allReduce.run(name, numBytes, machine)]));
      const run = runs[algorithm];
      const best = Object.keys(runs).reduce((a, b) => (runs[b].seconds < runs[a].seconds ? b : a));
      const sent = Math.max(...allReduce.bytesSent(algorithm, numBytes, ranks));
      const said = `${NAMES[algorithm]}: ${run.rounds.length} ${run.rounds.length === 1 ? 'round' : 'rounds'}, `
        + `${time(run.seconds)}, of which ${time(run.latency)} are latency. No rank sends more than ${size(sent)}. `
        + (best === algorithm ? 'Nothing is faster here.' : `Fastest here: ${NAMES[best]}, ${time(runs[best].seconds)}.`);
      const times = Object.entries(runs).map(([name, one]) => `${NAMES[name]} ${time(one.seconds)}`).join(', ');
      const laid = layout(stage);
      stage.append(picture(laid.width, laid.height, `${ranks} ranks on ${wires === 'switch' ? 'a switch' : 'a ring of cables'}. ${said} Times: ${times}.`,
        machinePicture(run, algorithm, machine, at / STOPS, laid), bars(runs, algorithm, laid)), legend(...KEYS));
      return said;
    },
  });
})();
