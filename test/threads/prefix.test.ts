import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { libraryLab } from '../app/library-lab.ts';
import { calls, reply, toolUse, type WireRequest } from '../helpers/wire-server.ts';

/** The content of a request, without the cache marks that move with each turn. */
function contentOf({ body }: WireRequest): { system: string; tools: string; messages: string[] } {
  const text = (value: unknown): string =>
    JSON.stringify(value).replaceAll(/,?"cache_control":\{"type":"ephemeral"\}/g, '');
  return {
    system: text(body?.system ?? ''),
    tools: text(body?.tools ?? []),
    messages: (body?.messages ?? []).map(text),
  };
}

// Requirement: discovery-cache-miss
it('what was sent comes again byte for byte, on every turn and on resume', async () => {
  const lab = await libraryLab([
    calls(toolUse('rye_file_system_ls', {}, 'a')),
    calls(toolUse('tool_search', { names: ['rye_file_system_glob'] }, 'b')),
    calls(toolUse('rye_file_system_glob', { pattern: '*' }, 'c')),
    reply('Done.'),
    reply('More done.'),
  ]);
  const config = path.join(lab.project, '.ai/config/agent/resilience.yaml');
  mkdirSync(path.dirname(config), { recursive: true });
  writeFileSync(config, 'tool_preload: { max_tokens: 200 }\n');
  const rye = lab.open();
  await rye.items.sign('config', 'agent/resilience');
  await lab.directive('work', ['rye/file-system/ls', 'rye/file-system/*']);
  const outcome = await rye.run({ directiveId: 'team/work' });
  expect(outcome).toMatchObject({ kind: 'completed', result: 'Done.' });
  // a later day, another process: nothing of it may show
  const later = lab.open();
  const { threadId } = outcome;
  const resumed = await later.recovery.resume({ threadId: threadId ?? '', message: 'And more.' });
  expect(resumed).toMatchObject({ status: 'completed', result: 'More done.' });

  const requests = lab.server.requests.map(contentOf);
  expect(requests).toHaveLength(5);
  expect(new Set(requests.map(({ system }) => system)).size).toBe(1);
  expect(requests[0]?.system).toContain('rye_file_system_glob');
  // a discovery changes the list of tools once
  const tools = requests.map((request) => request.tools);
  expect(tools[0]).toBe(tools[1]);
  expect(tools[1]).not.toBe(tools[2]);
  expect(tools[2]).toBe(tools[3]);
  for (const [index, { messages }] of requests.entries()) {
    const before = requests[index - 1]?.messages ?? [];
    expect(messages.slice(0, before.length)).toEqual(before);
  }
});
