// Runs the bundled program through what people run, and keeps what V8 compiled for it: `node program-warm-up.mjs <folder>`.
// Functions that were not called are not in it; they are compiled when they are, as everywhere.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { setFlagsFromString } from 'node:v8';
import vm from 'node:vm';

const TURN = `\`\`\`xml
<directive name="turn" version="1.0.0">
<metadata><description>One turn.</description><category></category><author>rye</author>
<limits turns="3" spend="1"/>
<permissions><execute><tool>rye/file-system/ls</tool></execute></permissions></metadata>
</directive>
\`\`\`

Say something.
`;

const USAGE = { input_tokens: 10, output_tokens: 1 };
const [folder = '.'] = process.argv.slice(2);
const root = mkdtempSync(path.join(tmpdir(), 'rye-warm-up-'));

function event(type, data) {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
}

/** A call of a tool, then words. */
function answer(isAsked) {
  const block = isAsked
    ? { type: 'tool_use', id: 'toolu_1', name: 'rye_file_system_ls', input: {} }
    : { type: 'text', text: '' };
  const delta = isAsked
    ? { type: 'input_json_delta', partial_json: '{"path":"."}' }
    : { type: 'text_delta', text: 'Said.' };
  const message = { type: 'message', role: 'assistant', model: 'm', content: [], usage: USAGE };
  return [
    event('message_start', { message }),
    event('content_block_start', { index: 0, content_block: block }),
    event('content_block_delta', { index: 0, delta }),
    event('content_block_stop', { index: 0 }),
    event('message_delta', {
      delta: { stop_reason: isAsked ? 'tool_use' : 'end_turn' },
      usage: USAGE,
    }),
    event('message_stop', {}),
  ].join('');
}

async function openProvider() {
  const server = createServer((request, response) => {
    let asked = '';
    request.setEncoding('utf8').on('data', (text) => {
      asked += text;
    });
    request.on('end', () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(answer(!asked.includes('toolu_1')));
    });
  });
  await new Promise((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

// what is compiled is to be there when it is kept
setFlagsFromString('--no-flush-bytecode');
const file = path.join(folder, 'program.cjs');
const source = readFileSync(file, 'latin1');
// the name stands in stack traces, wherever the program is installed
const script = new vm.Script(source, { filename: 'rye/dist/cli/program.cjs' });
const program = { exports: {} };
const require = createRequire(import.meta.url);
script.runInThisContext()(program.exports, require, program, file, (name) => import(name));
const { main, createProcessIo } = program.exports;

const provider = await openProvider();
const project = path.join(root, 'project');
mkdirSync(path.join(project, '.ai', 'directives'), { recursive: true });
writeFileSync(path.join(project, '.ai', 'directives', 'turn.md'), TURN);
const io = {
  ...createProcessIo(),
  cwd: project,
  homeDirectory: root,
  env: { PATH: process.env.PATH },
  stderr: { isTty: false, columns: 80, rows: 24, write: () => {} },
};
const model = { ANTHROPIC_API_KEY: 'none', ANTHROPIC_BASE_URL: provider.url };
try {
  for (const { line, env = {} } of [
    { line: 'init' },
    { line: 'sign directive turn' },
    { line: 'run turn', env: model },
    { line: 'run hello' },
    { line: 'search knowledge said' },
    { line: 'threads list' },
  ]) {
    const exitCode = await main(line.split(' '), { ...io, env: { ...io.env, ...env } });
    if (exitCode !== 0) throw new Error(`rye ${line} has failed`);
  }
  // a compiled form counts only under the flags that it was made with
  setFlagsFromString('--flush-bytecode');
  const name = `program-${process.version}-${process.arch}.cache`;
  writeFileSync(path.join(folder, name), script.createCachedData());
} finally {
  provider.close();
  rmSync(root, { recursive: true, force: true });
}
process.exit();
