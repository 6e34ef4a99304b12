// A scripted provider on loopback. Each trial has a separate address on it. It keeps every request, bills as a
// provider would (the whole input of each request that arrived, and each piece of output that it sent), and notes what
// the real API would refuse: a tool call without exactly one result, or a result without its call.
import { createServer } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';

const CHARACTERS_PER_TOKEN = 4;

function tokens(text) {
  return Math.ceil(text.length / CHARACTERS_PER_TOKEN);
}

export function blocksOf(body, type) {
  return body.messages
    .flatMap(({ content }) => (typeof content === 'string' ? [] : content))
    .filter((block) => block.type === type);
}

/** Lists the reasons for which the API would refuse calls and their results. */
function orphans(body) {
  const calls = blocksOf(body, 'tool_use').map(({ id }) => id);
  const results = blocksOf(body, 'tool_result').map(({ tool_use_id }) => tool_use_id);
  const without = calls.filter((id) => results.filter((one) => one === id).length !== 1);
  return [...without, ...results.filter((id) => !calls.includes(id))];
}

async function readBody(request) {
  let text = '';
  for await (const piece of request.setEncoding('utf8')) text += piece;
  return JSON.parse(text);
}

/** The events of an answer, each with the output tokens that it costs. */
function* events({ words = [], tools = [] }, id) {
  let index = 0;
  const block = function* (content_block, deltas) {
    yield [0, 'content_block_start', { index, content_block }];
    for (const { text, delta } of deltas)
      yield [tokens(text), 'content_block_delta', { index, delta }];
    yield [0, 'content_block_stop', { index }];
    index += 1;
  };
  if (words.length > 0) {
    const deltas = words.map((text) => ({ text, delta: { type: 'text_delta', text } }));
    yield* block({ type: 'text', text: '' }, deltas);
  }
  for (const { name, input } of tools) {
    const text = JSON.stringify(input);
    const delta = { type: 'input_json_delta', partial_json: text };
    const call = { type: 'tool_use', id: `toolu_${id}_${index}`, name, input: {} };
    yield* block(call, [{ text, delta }]);
  }
}

/** Sends one answer; `answer.until` holds the stream open after its content, `answer.silent` sends nothing at all. */
async function stream(answer, request, response) {
  if (answer.silent) return;
  const send = (type, data) =>
    response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const { input, id } = request;
  send('message_start', {
    message: {
      id: `msg_${id}`,
      type: 'message',
      role: 'assistant',
      model: request.body.model,
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: { input_tokens: input, output_tokens: 1 },
    },
  });
  for (const [cost, type, data] of events(answer, id)) {
    if (response.destroyed) return;
    request.output += cost;
    send(type, data);
    if (answer.pauseMs) await delay(answer.pauseMs);
  }
  if (answer.until) await answer.until;
  const stop_reason = (answer.tools ?? []).length > 0 ? 'tool_use' : 'end_turn';
  send('message_delta', { delta: { stop_reason }, usage: { output_tokens: request.output } });
  send('message_stop', {});
  response.end();
}

/** Starts the provider. `session(decide)` gives an address whose requests `decide(body, index)` answers. */
export async function openModel() {
  const sessions = new Map();
  let count = 0;
  const handle = async (incoming, response) => {
    const session = sessions.get(incoming.url.split('/')[1]);
    const body = await readBody(incoming);
    const { model, system, tools, messages } = body;
    count += 1;
    const request = {
      id: count,
      body,
      input: tokens(JSON.stringify([model, system, tools, messages])),
      output: 0,
    };
    session.requests.push(request);
    session.orphans.push(...orphans(body));
    for (const wake of session.waiting.splice(0)) wake();
    await stream(await session.decide(body, session.requests.length - 1), request, response);
  };
  const server = createServer((incoming, response) => {
    // a client that was killed closes its connection in the middle of an answer
    handle(incoming, response).catch(() => response.destroy());
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  return {
    session(decide) {
      const name = `s${sessions.size}`;
      const session = {
        decide,
        requests: [],
        orphans: [],
        waiting: [],
        url: `http://127.0.0.1:${port}/${name}`,
        /** Resolves as soon as the session has had `wanted` requests, or when `ended` does. */
        async asked(wanted, ended) {
          while (session.requests.length < wanted) {
            const woken = new Promise((resolve) => session.waiting.push(() => resolve(true)));
            if ((await Promise.race([woken, ended.then(() => false)])) === false) return false;
          }
          return true;
        },
      };
      sessions.set(name, session);
      return session;
    },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

const NOT_STARTED = 'was not started';

/** The steps of a conversation: the number that a command names, and the text of its result. */
export function stepsOf(body) {
  const results = new Map(
    blocksOf(body, 'tool_result').map((block) => [
      block.tool_use_id,
      JSON.stringify(block.content),
    ]),
  );
  return blocksOf(body, 'tool_use').flatMap(({ id, input }) => {
    const step = /step-(\d+)/.exec(JSON.stringify(input))?.[1];
    return step === undefined ? [] : [{ step: Number(step), result: results.get(id) ?? '' }];
  });
}

/**
 * Does `turns` steps, one command a turn. It reads the remaining steps from the conversation: a step that was not started
 * is asked for again, one whose effects are unknown is not.
 */
export function stepper(turns, command, options = {}) {
  return (body) => {
    const settled = new Set(
      stepsOf(body).flatMap(({ step, result }) => (result.includes(NOT_STARTED) ? [] : [step])),
    );
    const step = Array.from({ length: turns }, (_, at) => at + 1).find((one) => !settled.has(one));
    if (step === undefined) return { words: ['All steps ', 'are done.'], ...options };
    const words = [`Now step ${step}: `, 'one ', 'line ', 'more.'];
    return { words, tools: [{ name: 'rye_bash', input: { command: command(step) } }], ...options };
  };
}

export { NOT_STARTED };
