// The name of the model behind the server, which it has once it is loaded.

const PAUSE = 1500; // ms, while a model is being loaded

/** @param {Function} send @returns {Promise<?string>} null where the server does not say */
export async function modelName(send) {
  for (;;) {
    try {
      const answer = await send('/v1/models');
      if (answer.ok) return (await answer.json()).data?.[0]?.id ?? null;
      if (answer.status !== 503) return null;
    } catch {
      return null; // the first answer will say it
    }
    await new Promise((resolve) => { setTimeout(resolve, PAUSE); });
  }
}
