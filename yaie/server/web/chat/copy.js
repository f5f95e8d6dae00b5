// A request as a command or a program that anybody can run.

const quoted = (text) => `'${text.replace(/'/g, "'\\''")}'`;

/** @param {{path: string, body: object}} request @param {string} address @param {boolean} hasKey */
export function asCurl({ path, body }, address, hasKey) {
  return [
    `curl ${address}${path}`,
    ...(hasKey ? ['-H "Authorization: Bearer $YAIE_API_KEY"'] : []),
    "-H 'Content-Type: application/json'",
    `-d ${quoted(JSON.stringify(body, null, 1))}`,
  ].join(' \\\n  ');
}

/** With OpenAI's client. A JSON value of numbers, strings, lists and objects is one of Python's too. */
export function asPython({ path, body }, address, hasKey) {
  const { top_k, min_p, messages, prompt, ...rest } = body;
  const isChat = path.endsWith('/chat/completions');
  const given = Object.entries({ model: 'yaie', ...rest }).filter(([name]) => name !== 'model');
  return [
    ...(hasKey ? ['import os', ''] : []), 'from openai import OpenAI', '',
    `client = OpenAI(base_url="${address}/v1", api_key=${hasKey ? 'os.environ["YAIE_API_KEY"]' : '"none"'})`,
    `stream = client.${isChat ? 'chat.completions' : 'completions'}.create(`,
    '    model=client.models.list().data[0].id,',
    `    ${isChat ? 'messages' : 'prompt'}=${JSON.stringify(isChat ? messages : prompt)},`,
    ...given.map(([name, value]) => `    ${name}=${JSON.stringify(value)},`),
    `    extra_body=${JSON.stringify({ top_k, min_p })},`,
    '    stream=True,', ')', 'for chunk in stream:',
    `    print(chunk.choices[0].${isChat ? 'delta.content or ""' : 'text'}, end="", flush=True)`, '',
  ].join('\n');
}
