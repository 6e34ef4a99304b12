// A provider on loopback that answers with one tool call in 50 pieces, or with text if the prompt has "Answer in one word."
// or, after N results, "Call N times.".
// Its argument is the delay of each answer in milliseconds. Prints its address.
import { createServer } from 'node:http';
import process from 'node:process';

const PIECES = 50;
const delayMs = Number(process.argv[2] ?? 0);

function event(type, data) {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
}

function words() {
  return [
    event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
    event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: 'Done.' } }),
    event('content_block_stop', { index: 0 }),
    event('message_delta', { delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 2 } }),
  ];
}

function call(id, isVaried) {
  // a run that makes the same call again and again is stopped
  const input = JSON.stringify({ path: './'.repeat(PIECES * 2 - (isVaried ? id % 20 : 0)) });
  const size = Math.ceil(input.length / PIECES);
  const pieces = Array.from({ length: PIECES }, (_, at) => input.slice(at * size, (at + 1) * size));
  return [
    event('content_block_start', {
      index: 0,
      content_block: { type: 'tool_use', id: `toolu_${id}`, name: 'rye_file_system_ls', input: {} },
    }),
    ...pieces.map((partial_json) =>
      event('content_block_delta', { index: 0, delta: { type: 'input_json_delta', partial_json } }),
    ),
    event('content_block_stop', { index: 0 }),
    event('message_delta', { delta: { stop_reason: 'tool_use' }, usage: { output_tokens: 60 } }),
  ];
}

function answer(id, content) {
  return [
    event('message_start', {
      message: {
        id: `msg_${id}`,
        type: 'message',
        role: 'assistant',
        model: 'bench',
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage: { input_tokens: 10, output_tokens: 1 },
      },
    }),
    ...content,
    event('message_stop', {}),
  ];
}

let count = 0;

function reply(asked, response) {
  count += 1;
  const [, times] = /Call (\d+) times\./.exec(asked) ?? [];
  const results = asked.match(/"type":"tool_result"/g) ?? [];
  const isOver = times !== undefined && results.length >= Number(times);
  const isWords = isOver || asked.includes('Answer in one word.');
  const content = isWords ? words() : call(count, times !== undefined);
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  for (const piece of answer(count, content)) response.write(piece);
  response.end();
}

const server = createServer((request, response) => {
  let asked = '';
  request.setEncoding('utf8').on('data', (text) => {
    asked += text;
  });
  request.on('end', () => {
    if (delayMs === 0) reply(asked, response);
    else setTimeout(() => reply(asked, response), delayMs);
  });
});
server.listen(0, '127.0.0.1', () => {
  process.stdout.write(`http://127.0.0.1:${server.address().port}\n`);
});
