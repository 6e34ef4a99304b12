// Runs the most common commands in the bundled program and saves the code that V8 compiled for them:
// `node warm-up.mjs <folder>`. The cache holds only functions that were called; V8 compiles the others on first use.
// `node warm-up.mjs <folder> cold` saves the cache without running a command.
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

Answer in one word.
`;

const USAGE = { input_tokens: 10, output_tokens: 1 };
const [folder = '.', mode] = process.argv.slice(2);
const root = mkdtempSync(path.join(tmpdir(), 'rye-warm-up-'));

function event(type, data) {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
}

/** A tool call as the first answer, then text. */
function answer(isFirst) {
  const block = isFirst
    ? { type: 'tool_use', id: 'toolu_1', name: 'rye_file_system_ls', input: {} }
    : { type: 'text', text: '' };
  const delta = isFirst
    ? { type: 'input_json_delta', partial_json: '{"path":"."}' }
    : { type: 'text_delta', text: 'Done.' };
  const message = { type: 'message', role: 'assistant', model: 'm', content: [], usage: USAGE };
  return [
    event('message_start', { message }),
    event('content_block_start', { index: 0, content_block: block }),
    event('content_block_delta', { index: 0, delta }),
    event('content_block_stop', { index: 0 }),
    event('message_delta', {
      delta: { stop_reason: isFirst ? 'tool_use' : 'end_turn' },
      usage: USAGE,
    }),
    event('message_stop', {}),
  ].join('');
}

async function openProvider() {
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text) => {
      body += text;
    });
    request.on('end', () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(answer(!body.includes('toolu_1')));
    });
  });
  await new Promise((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

// V8 must not discard compiled code before it is saved
setFlagsFromString('--no-flush-bytecode');
const file = path.join(folder, 'program.cjs');
const source = readFileSync(file, 'latin1');
// stack traces show this name wherever the program is installed
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
const COMMANDS = [
  { line: 'init' },
  { line: 'sign directive turn' },
  { line: 'run turn', env: model },
  { line: 'run hello' },
  { line: 'search knowledge done' },
  { line: 'threads list' },
];
try {
  for (const { line, env = {} } of mode === 'cold' ? [] : COMMANDS) {
    const exitCode = await main(line.split(' '), { ...io, env: { ...io.env, ...env } });
    if (exitCode !== 0) throw new Error(`rye ${line} failed with exit status ${exitCode}`);
  }
  // V8 accepts the cache only under the flags that it was made with
  setFlagsFromString('--flush-bytecode');
  const name = `program-${process.version}-${process.arch}.cache`;
  writeFileSync(path.join(folder, name), script.createCachedData());
} finally {
  provider.close();
  rmSync(root, { recursive: true, force: true });
}
process.exit();
