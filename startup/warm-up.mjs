// Runs the most common commands in the bundled program and writes the names of the modules that they evaluated:
// `node warm-up.mjs <folder> <file>`.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
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
const [folder = '.', list = 'evaluated.json'] = process.argv.slice(2);
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

/** The names of the modules that were evaluated: what esbuild writes around a module notes its name. */
const evaluated = new Set();
const WRAPPERS = [
  [/\b__esm=\(fn,.*?\)=>function\(\)\{/, 'fn&&ryeEvaluated.add(Object.keys(fn)[0]);'],
  [/\b__commonJS=\(cb,.*?\)=>function\(\)\{/, 'ryeEvaluated.add(Object.keys(cb)[0]);'],
];

function noting(source) {
  globalThis.ryeEvaluated = evaluated;
  return WRAPPERS.reduce((text, [wrapper, note]) => {
    if (!wrapper.test(text)) throw new Error(`the bundle has no ${wrapper}`);
    return text.replace(wrapper, (start) => start + note);
  }, source);
}

const require = createRequire(import.meta.url);
const importModule = (name) => import(name);

/** Runs a file of the program as bin/rye.js does, and notes what it evaluates. */
function load(name, takePart) {
  const file = path.join(folder, `${name}.cjs`);
  const source = readFileSync(file, 'latin1');
  // stack traces show this name wherever the program is installed
  const script = new vm.Script(noting(source), {
    filename: `rye/dist/cli/${name}.cjs`,
  });
  const part = { exports: {} };
  script.runInThisContext()(part.exports, require, part, file, importModule, takePart);
  return part.exports;
}

const takePart = (name, shared) => load(name, (module) => shared[module]()).modules;
const program = load('program', takePart);

const provider = await openProvider();
const project = path.join(root, 'project');
mkdirSync(path.join(project, '.ai', 'directives'), { recursive: true });
writeFileSync(path.join(project, '.ai', 'directives', 'turn.md'), TURN);
const model = { ANTHROPIC_API_KEY: 'none', ANTHROPIC_BASE_URL: provider.url };
const PREPARATION = ['init', 'sign directive turn'];
/** Their modules are in the file that each start reads. */
const COMMON = ['run turn', 'run hello', 'search knowledge done', 'threads list'];

async function runAll(lines, { main, createProcessIo }) {
  const io = {
    // it opens rye with this program's own modules
    ...createProcessIo(),
    cwd: project,
    homeDirectory: root,
    stderr: { isTty: false, columns: 80, rows: 24, write: () => {} },
  };
  for (const line of lines) {
    const env = { PATH: process.env.PATH, ...(line === 'run turn' ? model : {}) };
    const exitCode = await main(line.split(' '), { ...io, env });
    if (exitCode !== 0) throw new Error(`rye ${line} failed with exit status ${exitCode}`);
  }
}

try {
  await runAll(PREPARATION, program);
  evaluated.clear();
  await runAll(COMMON, load('program', takePart));
  writeFileSync(list, JSON.stringify([...evaluated]));
} finally {
  provider.close();
  rmSync(root, { recursive: true, force: true });
}
process.exit();
