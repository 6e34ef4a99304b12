// What a durable tool turn costs over a bare HTTP and SSE client: log, fdatasync, signed checkpoint, ledger, registry,
// hooks and the tool itself. One call in 50 pieces a turn, warm. Target: 2.0 ms more than the bare client.
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { openRye } from '../dist/index.js';
import { median, ms, openWorkspace, row, startServer } from './harness.mjs';

const TURNS = 120;
const WARM_UP = 40;

const DIRECTIVE = [
  '```xml',
  '<directive name="turns" version="1.0.0">',
  '<metadata><description>Many turns.</description><category></category><author>bench</author>',
  `<limits turns="${TURNS}" spend="100" tokens="100000000"/>`,
  '<permissions><execute><tool>rye/file-system/ls</tool></execute></permissions></metadata>',
  '</directive>',
  '```',
  '',
  'List the folder.',
  '',
].join('\n');

/** The same requests with nothing but fetch and a line splitter: the messages grow as rye's do. */
async function bareTurns(url) {
  const messages = [{ role: 'user', content: DIRECTIVE }];
  const times = [];
  for (let turn = 0; turn < TURNS; turn += 1) {
    const started = performance.now();
    const response = await fetch(`${url}/v1/messages`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': 'bench' },
      body: JSON.stringify({ model: 'bench', max_tokens: 1000, stream: true, messages }),
    });
    let json = '';
    let rest = '';
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + chunk).split('\n');
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith('data:')) continue;
        const { delta } = JSON.parse(line.slice(5));
        json += delta?.partial_json ?? '';
      }
    }
    messages.push(
      {
        role: 'assistant',
        content: [{ type: 'tool_use', id: `t${turn}`, name: 'ls', input: JSON.parse(json) }],
      },
      {
        role: 'user',
        content: [{ type: 'tool_result', tool_use_id: `t${turn}`, content: 'data\n' }],
      },
    );
    times.push(performance.now() - started);
  }
  return times;
}

async function ryeTurns(url, workspace, durability) {
  const rye = openRye({
    projectPath: workspace.project,
    userSpacePath: workspace.env.HOME,
    env: { PATH: process.env.PATH, ANTHROPIC_API_KEY: 'bench', ANTHROPIC_BASE_URL: url },
    configOverrides: [`resilience.transcript.durability=${durability}`],
  });
  const marks = [];
  const result = await rye.threads.execute({
    directiveId: 'turns',
    onEvent: ({ event_type: type }) => {
      if (type === 'cost') marks.push(performance.now());
    },
  });
  rye.close();
  if (result.error?.code !== 'limit_turns') throw new Error(JSON.stringify(result.error));
  return marks.slice(1).map((mark, at) => mark - marks[at]);
}

export async function run() {
  const workspace = openWorkspace();
  const server = await startServer('./wire.mjs');
  try {
    const folder = path.join(workspace.project, '.ai', 'directives');
    mkdirSync(folder, { recursive: true });
    mkdirSync(path.join(workspace.project, 'data'));
    writeFileSync(path.join(folder, 'turns.md'), DIRECTIVE);
    workspace.rye('sign', 'directive', 'turns');
    const bare = median((await bareTurns(server.url)).slice(WARM_UP));
    const durable = median((await ryeTurns(server.url, workspace, 'turn')).slice(WARM_UP));
    const volatile = median((await ryeTurns(server.url, workspace, 'off')).slice(WARM_UP));
    row('tool turn, 1 call, 50 deltas, warm', 'median', 'over bare');
    row('  bare HTTP and SSE client', ms(bare), '');
    row('  rye, durable and signed', ms(durable), ms(durable - bare));
    row('  rye, durability off', ms(volatile), ms(volatile - bare));
    row(
      '  peak memory of the process',
      `${Math.round(process.resourceUsage().maxRSS / 1024)} MiB`,
      '',
    );
  } finally {
    server.close();
    workspace.close();
  }
}
