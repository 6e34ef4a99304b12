// A provider on loopback whose answer has as many 4-character pieces of text as the first segment of the path. It writes
// no faster than it is read. Prints its address.
import { once } from 'node:events';
import { createServer } from 'node:http';
import process from 'node:process';

const PIECES_A_WRITE = 100;

function event(type, data) {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
}

const START = [
  event('message_start', {
    message: {
      id: 'msg_1',
      type: 'message',
      role: 'assistant',
      model: 'bench',
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: { input_tokens: 10, output_tokens: 1 },
    },
  }),
  event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
].join('');
const PIECE = event('content_block_delta', {
  index: 0,
  delta: { type: 'text_delta', text: 'abc ' },
});
const END = [
  event('content_block_stop', { index: 0 }),
  event('message_delta', { delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 10 } }),
  event('message_stop', {}),
].join('');

async function answer(count, response) {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write(START);
  for (let left = count; left > 0; left -= PIECES_A_WRITE) {
    const isTaken = response.write(PIECE.repeat(Math.min(left, PIECES_A_WRITE)));
    if (!isTaken) await once(response, 'drain');
  }
  response.end(END);
}

const server = createServer((request, response) => {
  const count = Number(/^\/(\d+)\//.exec(request.url ?? '')?.[1] ?? 0);
  request.resume().on('end', () => {
    answer(count, response).catch(() => response.destroy());
  });
});
server.listen(0, '127.0.0.1', () => {
  process.stdout.write(`http://127.0.0.1:${server.address().port}\n`);
});
