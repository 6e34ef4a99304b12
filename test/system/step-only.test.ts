import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { parseDirective } from '../../src/kernel/items/directive.ts';
import { workspace } from '../helpers/workspace.ts';

const ROOT = path.resolve(import.meta.dirname, '../../.ai/directives');

/** The environment of a person with keys for two providers, and a list of the requests that reach either. */
async function paidModels(): Promise<{ env: Record<string, string>; requests: string[] }> {
  const requests: string[] = [];
  const server = createServer((request, response) => {
    requests.push(request.url ?? '');
    response.writeHead(500).end();
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const env = {
    ANTHROPIC_API_KEY: 'sk-ant-0123456789',
    ANTHROPIC_BASE_URL: url,
    OPENAI_API_KEY: 'sk-0123456789',
    OPENAI_BASE_URL: `${url}/v1`,
  };
  return { env, requests };
}

it('every shipped directive with steps declares the literal provider', () => {
  const files = readdirSync(ROOT, { recursive: true, encoding: 'utf8' });
  const stepped = files
    .filter((file) => file.endsWith('.md'))
    .map((file) => parseDirective(readFileSync(path.join(ROOT, file), 'utf8'), file))
    .filter(({ steps }) => steps.length > 0);
  expect(stepped.map(({ name }) => name).toSorted()).toEqual([
    'create_directive',
    'fan_out_report',
    'folder_share',
    'hello',
    'project_report',
  ]);
  for (const { name, model } of stepped) expect([name, model?.provider]).toEqual([name, 'literal']);
});

it('step-only directives call no paid model, even with API keys in the environment', async () => {
  const { env, requests } = await paidModels();
  const here = await workspace();
  writeFileSync(path.join(here.project, 'notes.txt'), 'one\ntwo\n');
  for (const args of [
    ['hello', '--input', 'who=Ada'],
    ['example'],
    ['rye/core/project_report'],
    ['rye/examples/fan_out_report'],
    [
      'rye/core/create_directive',
      ...['id=weekly', 'description=Summarize', 'instructions=Read it.'].flatMap((input) => [
        '--input',
        input,
      ]),
    ],
  ]) {
    const { code, stdout, stderr } = await here.rye(['run', ...args, '--json'], { env });
    expect(code, `${args.join(' ')}\n${stderr}`).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ success: true, cost: { spend: 0 } });
  }
  expect(requests).toEqual([]);
});

it('--model runs a step-only directive with a model', async () => {
  const { env, requests } = await paidModels();
  const here = await workspace();
  for (const [option, provider] of [
    ['--model=claude-sonnet-5-5', 'anthropic'],
    ['--provider=openai', 'openai'],
  ] as const) {
    const document = await here.json(['run', 'hello', option, '--dry-run'], { env });
    expect(document).toMatchObject({ plan: { model: { provider } } });
  }
  expect(requests).toEqual([]);
});

it('a directive without steps that declares literal asks for steps or another provider, not for a key', async () => {
  const { env, requests } = await paidModels();
  const here = await workspace();
  const file = path.join(here.project, '.ai/directives/empty.md');
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(
    file,
    '```xml\n<directive name="empty" version="1.0.0"><metadata><description>d</description><category></category><author>a</author><model provider="literal"/></metadata></directive>\n```\n\nDo it.\n',
  );
  expect((await here.rye(['sign', 'directive', 'empty'])).code).toBe(0);
  for (const [keys, way] of [
    [env, /pass --provider (?:anthropic|openai)\./],
    [{}, /rye models list/],
  ] as const) {
    const { code, stderr } = await here.rye(['run', 'empty'], { env: keys });
    expect(code).toBe(1);
    expect(stderr).toContain('and the directive has none [literal_unsupported]');
    expect(stderr).toMatch(/hint: Write a <step> into its <process>/);
    expect(stderr).toMatch(way);
    expect(stderr).not.toContain('API_KEY');
  }
  expect(requests).toEqual([]);
});
