// The step of a load at which one sees what it is for.

const isPrompt = (row) => Boolean(row.is_prefill);

/** How well a record shows it, 0 if not at all. urgent: ids of the requests with the best priority. */
const SCORES = {
  /** Requests that found the beginning of their prompt. */
  shared: ({ rows = [] }) => rows.filter((row) => isPrompt(row) && row.start > 0 && row.cached === row.start).length,
  /** A chunk that is neither first nor alone, beside others' decodes. */
  long: ({ rows = [] }) => (rows.some((row) => isPrompt(row) && row.start > (row.cached ?? 0))
    ? rows.filter((row) => !isPrompt(row)).length : 0),
  /** The first preemption. */
  blocks: ({ preempted = [] }) => Number(preempted.length > 0),
  /** Urgent ones compute their prompts while others wait. */
  priorities: ({ rows = [], num_waiting: waiting = 0 }, urgent) =>
    (waiting ? rows.filter((row) => isPrompt(row) && urgent.has(row.id)).length : 0),
};

function urgentOf(records) {
  const came = records.flatMap((record) => record.new ?? []);
  const best = Math.min(...came.map(({ priority = 0 }) => priority));
  return new Set(came.filter(({ priority = 0 }) => priority === best).map(({ id }) => id));
}

/**
 * @param {string} name of a load @param {object[]} records those that are kept @param {number} after the last step
 * before the load began
 * @returns {number} index of the first record that shows it best, -1 if none does
 */
export function stopOf(name, records, after) {
  const urgent = urgentOf(records.filter(({ n }) => n > after));
  const scores = records.map((record) => (record.n > after ? SCORES[name](record, urgent) : 0));
  const most = Math.max(0, ...scores);
  return most ? scores.indexOf(most) : -1;
}
