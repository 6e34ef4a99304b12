import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import schemas from '../../src/kernel/schemas/settings.json' with { type: 'json' };
import { calls, reply, startWireServer, toolUse, type WireServer } from '../helpers/wire-server.ts';
import { temporaryWorkspace } from '../helpers/workspace.ts';

interface Node {
  readonly type?: string | readonly string[];
  readonly properties?: Readonly<Record<string, Node>>;
}

/** The paths of all numbers in a schema, as `-c` takes them. */
function numbersIn(node: Node, at: string): readonly string[] {
  if ([node.type].flat().includes('number')) return [at];
  return Object.entries(node.properties ?? {}).flatMap(([name, inner]) =>
    numbersIn(inner, `${at}.${name}`),
  );
}

const FILES = ['coordination', 'resilience', 'rules'] as const;
const NUMBERS = FILES.flatMap((file) =>
  numbersIn((schemas.properties as Readonly<Record<string, Node>>)[`agent/${file}`] ?? {}, file),
);
const LIMITS = ['turns', 'tokens', 'spend', 'duration_seconds', 'spawns', 'depth'];
const MAXIMUM = Number.MAX_SAFE_INTEGER;

let here: Awaited<ReturnType<typeof temporaryWorkspace>>;
let server: WireServer;
const warnings: string[] = [];
const onWarning = ({ name }: Error): void => void warnings.push(name);

function directive(name: string, limits: string): string {
  return `\`\`\`xml
<directive name="${name}" version="1.0.0">
  <metadata><description>d</description><category></category><author>a</author><limits ${limits}/>
    <permissions><execute><tool>rye/bash</tool><tool>t/month</tool></execute><acknowledge risk="elevated">r</acknowledge></permissions></metadata>
</directive>
\`\`\`

Work.
`;
}

async function save(file: string, text: string, kind: string, id: string): Promise<void> {
  const target = path.join(here.project, '.ai', file);
  mkdirSync(path.dirname(target), { recursive: true });
  writeFileSync(target, text);
  const signed = await here.rye(['sign', kind, id]);
  expect(signed.code, signed.stderr).toBe(0);
}

beforeAll(async () => {
  here = await temporaryWorkspace({});
  server = await startWireServer(({ body }) =>
    body.messages.length === 1
      ? calls(toolUse('rye_bash', { command: 'echo ran' }), toolUse('t_month', {}))
      : reply('Done.'),
  );
  const tool = `# rye:tool\n# version: 1.0.0\n# description: d\n# traits: {timeout_seconds: ${30 * 86_400}}\n# /rye:tool\necho month\n`;
  await save('tools/t/month.sh', tool, 'tool', 't/month');
  await save('directives/work.md', directive('work', ''), 'directive', 'work');
  process.on('warning', onWarning);
});
afterAll(async () => {
  process.off('warning', onWarning);
  await server.close();
  here.remove();
});

async function run(id: string, ...settings: readonly string[]) {
  const env = { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url };
  const config = settings.flatMap((setting) => ['-c', setting]);
  const { code, stderr } = await here.rye(['run', id, '--raise-limits', ...config], { env });
  expect(warnings).toEqual([]);
  return { code, stderr };
}

test.each([0, MAXIMUM])('all numbers of the settings at %d', async (value) => {
  const { code, stderr } = await run('work', ...NUMBERS.map((name) => `${name}=${value}`));
  expect(code, stderr).toBe(0);
});

const RETRY = NUMBERS.filter((name) => /retry\..*_seconds$/.test(name));
test.each(RETRY.flatMap((name) => [`${name}=0`, `${name}=${MAXIMUM}`]))('%s', async (setting) => {
  const { code, stderr } = await run('work', setting);
  expect(code, stderr).toBe(0);
});

test('limits at their maximum', async () => {
  const limits = LIMITS.map((name) => `${name}="1000000000"`).join(' ');
  await save('directives/wide.md', directive('wide', limits), 'directive', 'wide');
  const { code, stderr } = await run('wide');
  expect(code, stderr).toBe(0);
});

test('a duration of thirty days', async () => {
  const limits = `duration_seconds="${30 * 86_400}"`;
  await save('directives/month.md', directive('month', limits), 'directive', 'month');
  const { code, stderr } = await run('month');
  expect(code, stderr).toBe(0);
});
