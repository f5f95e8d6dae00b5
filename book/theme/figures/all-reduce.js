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
  const { svg, html } = yaie;
  const { text, hatching } = yaie.timeline;
  const NAMES = { ring: 'ring', tree: 'tree', one_shot: 'one-shot', two_shot: 'two-shot' };
  const [WIDTH, HEIGHT, CENTRE, RADIUS, SPOT] = [320, 346, 160, 122, 14];
  const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB'];
  const pressed = new WeakMap(); // of each figure: how often "Play" has been pressed

  function size(bytes) {
    const unit = Math.min(3, Math.floor(Math.log2(Math.max(bytes, 1)) / 10));
    const value = bytes / 1024 ** unit;
    return `${value.toLocaleString('en', { maximumFractionDigits: value < 10 ? 1 : 0 })} ${BYTE_UNITS[unit]}`;
  }
  function time(seconds) {
    const [value, unit] = seconds < 1e-3 ? [seconds * 1e6, 'µs'] : seconds < 1 ? [seconds * 1e3, 'ms'] : [seconds, 's'];
    return `${value.toLocaleString('en', { maximumFractionDigits: value < 100 ? 1 : 0 })} ${unit}`;
  }

  /** Where a rank or the switch is drawn. */
  function place(station, ranks, radius = RADIUS) {
    if (station === allReduce.SWITCH) return [CENTRE, CENTRE];
    const angle = 2 * Math.PI * station / ranks - Math.PI / 2;
    return [CENTRE + radius * Math.cos(angle), CENTRE + radius * Math.sin(angle)];
  }

  /** The point at a share of a way, whose links are passed one after the other. */
  function along(stations, ranks, share) {
    const links = stations.length - 1;
    const index = Math.min(links - 1, Math.floor(share * links));
    const [from, to] = [place(stations[index], ranks), place(stations[index + 1], ranks)];
    const rest = share * links - index;
    return [from[0] + (to[0] - from[0]) * rest, from[1] + (to[1] - from[1]) * rest];
  }

  function wiring({ ranks, wires }) {
    const ends = wires === 'switch' ? allReduce.range(ranks).map((rank) => [rank, allReduce.SWITCH])
      : allReduce.range(ranks).map((rank) => [rank, (rank + 1) % ranks]);
    return ends.map(([a, b]) => {
      const [[x1, y1], [x2, y2]] = [place(a, ranks), place(b, ranks)];
      return svg('line', { x1, y1, x2, y2, stroke: 'var(--y-line)' });
    });
  }

  function rankSpot(rank, ranks, done) {
    const [[x, y], [nameX, nameY]] = [place(rank, ranks), place(rank, ranks, RADIUS + SPOT + 12)];
    const whole = done === ranks;
    return [
      svg('circle', { cx: x, cy: y, r: SPOT, fill: whole ? 'var(--y-green-soft)' : 'var(--bg)',
        stroke: whole ? 'var(--y-green)' : 'var(--y-line)', 'stroke-width': whole ? 3 : 1 }),
      text(x, y + 4, done, { size: 11, bold: whole }),
      text(nameX, nameY + 4, rank, { size: 11 }),
    ];
  }

  /** The machine at a share (0 to 1) of the whole time. Its `show` draws another share. */
  function machinePicture(run, machine, label) {
    const { ranks, wires } = machine;
    const moving = svg('g', {});
    const clock = text(CENTRE, HEIGHT - 6, '', { size: 12 });
    const picture = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': label },
      wiring(machine),
      wires === 'switch' ? svg('rect', { x: CENTRE - 27, y: CENTRE - 12, width: 54, height: 24, rx: 4, fill: 'var(--bg)',
        stroke: 'var(--y-line)' }) : null,
      wires === 'switch' ? text(CENTRE, CENTRE + 4, 'switch', { size: 11 }) : null,
      moving, clock);
    let shownRound = -1, spots = [], dots = [];

    function show(share) {
      const now = share * run.seconds;
      let index = 0, begin = 0;
      const spans = run.costs.map((one) => one.latency + one.bytes);
      while (index < spans.length - 1 && now >= begin + spans[index]) begin += spans[index++];
      const ended = share >= 1 ? run.rounds.length : index;
      if (ended !== shownRound) {
        shownRound = ended;
        const done = allReduce.complete(run.rounds, ended, ranks);
        spots = allReduce.range(ranks).flatMap((rank) => rankSpot(rank, ranks, done[rank]));
        dots = (run.rounds[ended] ?? []).map((transfer) => [allReduce.way(transfer, machine), transfer[3]
          ? svg('circle', { r: 4.5, fill: 'var(--y-blue)' })
          : svg('rect', { x: -4, y: -4, width: 8, height: 8, fill: 'var(--y-orange)' })]);
        moving.replaceChildren(...dots.map(([, dot]) => dot), ...spots);
      }
      const within = Math.min(1, Math.max(0, (now - begin) / spans[index]));
      for (const [stations, dot] of dots) {
        const [x, y] = along(stations, ranks, within);
        dot.setAttribute('transform', `translate(${x} ${y})`);
      }
      const which = ended < run.rounds.length ? `round ${ended + 1} of ${run.rounds.length}` : 'done';
      clock.textContent = `${time(now)}, ${which}`;
    }
    return { picture, show };
  }

  /** Runs the picture once, as long as it is in the page; where motion is unwanted, round by round. */
  function play(run, show, rest) {
    const long = 1000 * Math.min(8, Math.max(1.6, 0.5 * run.rounds.length));
    const jumps = matchMedia('(prefers-reduced-motion: reduce)').matches;
    let start = null;
    const frame = (now) => {
      start ??= now;
      const share = (now - start) / long;
      if (!show.picture.isConnected) return;
      if (share >= 1) { show.show(1); setTimeout(() => show.picture.isConnected && rest(), 1500); return; }
      const count = run.rounds.length;
      show.show(jumps ? (Math.floor(share * count) + 0.5) / count : share);
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  /** A bar for each algorithm: what it waits for latencies, and what for bytes. */
  function bars(runs, chosen, label) {
    const most = Math.max(...Object.values(runs).map((run) => run.seconds));
    const [left, wide, row] = [92, 140, 46];
    const width = (seconds) => wide * seconds / most;
    return svg('svg', { viewBox: `0 0 320 ${row * 4 + 42}`, role: 'img', 'aria-label': label },
      Object.entries(runs).flatMap(([name, run], index) => {
        const y = 8 + index * row, bold = name === chosen;
        return [
          text(left - 8, y + 17, `${bold ? '▸ ' : ''}${NAMES[name]}`, { anchor: 'end', size: 12, bold }),
          svg('rect', { x: left, y, width: width(run.latency), height: 24, fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' }),
          svg('rect', { x: left + width(run.latency), y, width: width(run.bytes), height: 24, fill: 'var(--y-orange-soft)',
            stroke: 'var(--y-orange)' }),
          width(run.bytes) > 3 ? hatching(left + width(run.latency), y, width(run.bytes), 24) : null,
          text(left + width(run.seconds) + 6, y + 17, time(run.seconds), { anchor: 'start', size: 12, bold }),
        ];
      }),
      svg('rect', { x: 20, y: row * 4 + 14, width: 16, height: 14, fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' }),
      text(42, row * 4 + 26, 'latency', { anchor: 'start', size: 12 }),
      svg('rect', { x: 112, y: row * 4 + 14, width: 16, height: 14, fill: 'var(--y-orange-soft)', stroke: 'var(--y-orange)' }),
      hatching(112, row * 4 + 14, 16, 14),
      text(134, row * 4 + 26, 'bytes on the busiest link', { anchor: 'start', size: 12 }));
  }

  yaie.controlled('all-reduce', {
    controls: () => [
      { name: 'algorithm', label: 'algorithm', options: Object.entries(NAMES), value: 'ring' },
      { name: 'wires', label: 'wires', options: [['switch', 'a switch'], ['cables', 'a ring of cables']], value: 'switch' },
      { name: 'ranks', label: 'ranks', min: 2, max: 16, step: 1, value: 16 },
      { name: 'size', label: 'tensor', min: 10, max: 30, step: 1, value: 13, format: (power) => size(2 ** power) },
      { name: 'latency', label: 'latency', min: 0.5, max: 20, step: 0.5, value: 2, format: (us) => `${us} µs` },
      { name: 'bandwidth', label: 'bandwidth', min: 10, max: 900, step: 10, value: 400, format: (rate) => `${rate} GB/s` },
      { name: 'at', label: 'time', min: 0, max: 100, step: 1, value: 0, format: (share) => `${share}%` },
      { name: 'play', label: 'Play', button: true },
    ],
    draw(stage, { algorithm, wires, ranks, size: power, latency, bandwidth, at, play: presses }, data) {
      const machine = { ranks, wires, latency: latency / 1e6, bandwidth: bandwidth * 1e9 };
      const numBytes = 2 ** power;
      const runs = Object.fromEntries(Object.keys(NAMES).map((name) => [name, allReduce.run(name, numBytes, machine)]));
      const run = runs[algorithm];
      const best = Object.keys(runs).reduce((a, b) => (runs[b].seconds < runs[a].seconds ? b : a));
      const sent = Math.max(...allReduce.bytesSent(algorithm, numBytes, ranks));
      const said = `${NAMES[algorithm]}: ${run.rounds.length} ${run.rounds.length === 1 ? 'round' : 'rounds'}, `
        + `${time(run.seconds)}, of which ${time(run.latency)} are latency. No rank sends more than ${size(sent)}. `
        + (best === algorithm ? 'Nothing is faster here.' : `Fastest here: ${NAMES[best]}, ${time(runs[best].seconds)}.`);
      const show = machinePicture(run, machine, `${ranks} ranks on ${wires === 'switch' ? 'a switch' : 'a ring of cables'}. ${said}`);
      const label = `Times: ${Object.entries(runs).map(([name, one]) => `${NAMES[name]} ${time(one.seconds)}`).join(', ')}.`;
      const half = (picture) => html('div', { style: 'flex: 1 1 270px; max-width: 420px' }, picture);
      stage.append(html('div', { style: 'display: flex; flex-wrap: wrap; gap: 0.6em 1.2em; align-items: center; justify-content: center' },
        half(show.picture), half(bars(runs, algorithm, label))));
      show.show(at / 100);
      if (presses > (pressed.get(data) ?? 0)) {
        pressed.set(data, presses);
        play(run, show, () => show.show(at / 100));
      }
      return said;
    },
  });
})();
