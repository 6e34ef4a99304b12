// A scripted provider on loopback for the jobs of first-hour.mjs. The job is a word in the prompt. Prints its address.
import { createServer } from 'node:http';
import process from 'node:process';

/** Milliseconds between two words of a slow answer. */
const SLOW_MS = 20;
const FINDINGS = {
  verdict: 'request_changes',
  findings: [{ file: 'src/a.js', message: 'b is never used' }],
};

const read = (offset) => ['rye_file_system_read', { path: 'CHANGELOG.md', offset }];
const returns = (outputs) => ['rye_directive_return', outputs];

/** One answer for each job: `turn` counts the answers before it. */
const SCRIPT = {
  NIGHTLY: ({ turn }) =>
    turn === 0
      ? { calls: [read(1)] }
      : { calls: [returns({ summary: 'Two fixes and a quoll.', open: 2 })] },
  // without the schema in the request, a model cannot know the words of the enum
  REVIEW: ({ body }) => ({
    text: JSON.stringify(body).includes('request_changes') ? JSON.stringify(FINDINGS) : 'Fine.',
  }),
  SUMMARY: ({ prompt }) => ({
    calls: [returns({ summary: `${/SUMMARY of (\S+)/.exec(prompt)?.[1]} in one line` })],
  }),
  COSTLY: ({ turn }) => ({ text: 'Thinking. '.repeat(200), calls: [read(turn + 1)] }),
  DEPLOY: ({ turn }) =>
    turn === 0
      ? { calls: [['rye_bash', { command: 'echo deployed > deployed.txt' }]] }
      : { text: 'Deployed.' },
  LONG: ({ turn }) =>
    turn < 2
      ? { text: 'word '.repeat(40), slow: true, calls: [['rye_file_system_ls', { path: '.' }]] }
      : { text: 'Finished the long work.' },
  NOTES: ({ turn }) =>
    turn === 0
      ? { calls: [['mcp_files_list_directory', { path: '.' }]] }
      : { text: 'The folder has one note.' },
};

function event(type, data) {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
}

function textOf({ content }) {
  return typeof content === 'string' ? content : content.map(({ text = '' }) => text).join('\n');
}

function answerTo(body) {
  const prompt = body.messages.map(textOf).join('\n');
  const job = Object.keys(SCRIPT).find((word) => prompt.includes(word));
  const turn = body.messages.filter(({ role }) => role === 'assistant').length;
  return job === undefined ? { text: 'Done.' } : SCRIPT[job]({ turn, prompt, body });
}

function* piecesOf({ text = '', calls = [] }, id) {
  const usage = { input_tokens: 900, output_tokens: 1 };
  const message = { role: 'assistant', model: 'bench', content: [], stop_reason: null, usage };
  yield event('message_start', {
    message: { id: `msg_${id}`, type: 'message', stop_sequence: null, ...message },
  });
  if (text !== '') {
    yield event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } });
    for (const word of text.match(/\S+\s*/g)) {
      yield event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: word } });
    }
    yield event('content_block_stop', { index: 0 });
  }
  for (const [at, [name, input]] of calls.entries()) {
    const index = at + (text === '' ? 0 : 1);
    const content_block = { type: 'tool_use', id: `toolu_${id}_${at}`, name, input: {} };
    const delta = { type: 'input_json_delta', partial_json: JSON.stringify(input) };
    yield event('content_block_start', { index, content_block });
    yield event('content_block_delta', { index, delta });
    yield event('content_block_stop', { index });
  }
  const stop_reason = calls.length > 0 ? 'tool_use' : 'end_turn';
  yield event('message_delta', { delta: { stop_reason }, usage: { output_tokens: 60 } });
  yield event('message_stop', {});
}

let count = 0;

async function reply(asked, response) {
  count += 1;
  const answer = answerTo(JSON.parse(asked));
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  for (const piece of piecesOf(answer, count)) {
    if (answer.slow) await new Promise((resolve) => void setTimeout(resolve, SLOW_MS));
    if (response.destroyed) return;
    response.write(piece);
  }
  response.end();
}

const server = createServer((request, response) => {
  let asked = '';
  request.setEncoding('utf8').on('data', (text) => {
    asked += text;
  });
  request.on('end', () => {
    reply(asked, response).catch(() => response.destroy());
  });
});
server.listen(0, '127.0.0.1', () => {
  process.stdout.write(`http://127.0.0.1:${server.address().port}\n`);
});
