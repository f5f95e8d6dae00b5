// The ids in front of an answer. Its stream said them; of an answer that the browser kept, the server is asked again.

import { nextToken } from './distribution.js';

/** Whether the model that is served wrote it: ids of another one's mean other words here. */
export const isOwn = (ctx, turn) => turn.model === ctx.model;

/** Sees to it that `turn.prompt` is there. */
export async function recall(ctx, turn, signal) {
  if (turn.prompt) return;
  const found = await nextToken(ctx.send, { messages: ctx.conversation.messages(turn.parent) }, ctx.settings, signal);
  turn.prompt ??= found.prompt;
}
