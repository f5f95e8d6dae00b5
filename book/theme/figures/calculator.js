// A figure that computes: rows of bars on one scale, from controls and a formula that a test can call.
'use strict';

yaie.calculator = (() => {
  const { html } = yaie;
  const STYLE = `
    .yc { display: grid; grid-template-columns: minmax(9em, auto) 1fr; gap: 0.35em 0.8em; font-size: 13px; align-items: center; }
    .yc-name { line-height: 1.25; }
    .yc-name small { display: block; font-size: 12px; opacity: 0.85; }
    .yc-bar { display: flex; align-items: center; gap: 0.5em; min-width: 0; }
    .yc-bar > i { display: block; height: 16px; flex: none; background: var(--y-blue); border-radius: 2px; min-width: 2px; }
    .yc-bar > b { white-space: nowrap; font-weight: 600; font-variant-numeric: tabular-nums; }
    .yc-bar[data-kind=second] > i { background: var(--y-orange); }
    .yc-bar[data-kind=best] > i { background: var(--y-green); }
    .yc-bar[data-kind=none] > i { background: repeating-linear-gradient(135deg, var(--y-grey) 0 4px, transparent 4px 7px); }
    .yc-scale { grid-column: 1 / -1; font-size: 12px; text-align: end; }
    @media (max-width: 480px) { .yc { grid-template-columns: 1fr; gap: 0.1em; } .yc-bar { margin-bottom: 0.5em; } }`;
  document.head.append(html('style', {}, STYLE));

  const UNITS = {
    bytes: [[1e12, 'TB'], [1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB'], [1, 'B']],
    seconds: [[1, 's'], [1e-3, 'ms'], [1e-6, 'µs'], [1e-9, 'ns']],
    flops: [[1e12, 'TFLOP'], [1e9, 'GFLOP'], [1e6, 'MFLOP'], [1, 'FLOP']],
  };

  /** A number for people: three digits and a unit. */
  function show(value, unit) {
    const units = UNITS[unit];
    if (!units) return `${Number(value.toPrecision(3)).toLocaleString('en')}${unit ? ` ${unit}` : ''}`;
    const [size, name] = units.find(([least]) => value >= 0.9995 * least) ?? units[units.length - 1];
    return `${Number((value / size).toPrecision(3)).toLocaleString('en')} ${name}`;
  }

  /** How wide each bar is, as a share of `top` or of the longest. With `log`, six decades below it end at nothing. */
  function widths(values, log, top) {
    const most = top ?? Math.max(...values);
    return values.map((value) => (!most || !value ? 0
      : log ? Math.max(0, 1 + Math.log10(value / most) / 6) : value / most));
  }

  /** spec: controls(data), rows(values, data) to [{ name, how, value, unit, kind }], say(values, rows, data); log, top: see `widths`. */
  return Object.assign((name, spec) => yaie.controlled(name, {
    controls: spec.controls,
    plays: spec.plays,
    draw(stage, values, data) {
      const rows = spec.rows(values, data);
      const shares = widths(rows.map((row) => row.value), spec.log, spec.top);
      const bar = (row, index) => [
        html('div', { class: 'yc-name', 'data-key': `name-${row.name}` }, row.name, row.how && html('small', {}, row.how)),
        html('div', { class: 'yc-bar', 'data-kind': row.kind, 'data-key': `bar-${row.name}`, 'data-thing': row.name },
          html('i', { style: `width: ${(62 * shares[index]).toFixed(2)}%` }), html('b', {}, show(row.value, row.unit))),
      ];
      const scale = spec.log ? html('div', { class: 'yc-scale' }, 'Bars are logarithmic: every factor of ten adds the same length.') : null;
      stage.append(html('div', { class: 'yc' }, rows.flatMap(bar), scale));
      return spec.say(values, rows, data);
    },
  }), { show, widths });
})();
