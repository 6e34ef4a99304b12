import { expect, it } from 'vitest';
import { userText } from '../../src/kernel/core/message.ts';
import { withAliases } from '../../src/kernel/providers/aliases.ts';
import type { ModelEvent, ModelRequest } from '../../src/kernel/providers/provider.ts';
import { createToolSearch } from '../../src/kernel/tools/disclosure.ts';
import { libraryLab } from '../app/library-lab.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';

const ALIASES = new Map([['rye_bash', 'Bash']]);
const CALL = { type: 'tool_call', call_id: 'a', name: 'rye_bash', input: {} } as const;
const USAGE = { input_tokens: 0, output_tokens: 0, cache_read_tokens: 0, cache_write_tokens: 0 };

async function through(events: readonly ModelEvent[]) {
  const requests: ModelRequest[] = [];
  const provider = withAliases(
    {
      name: 'x',
      async *stream(request) {
        requests.push(request);
        yield* events;
      },
    },
    ALIASES,
  );
  const request: ModelRequest = {
    model: 'm',
    system: '',
    messages: [
      userText('Hi.'),
      {
        role: 'assistant',
        content: [CALL],
        provider: 'x',
        model: 'm',
        stop_reason: 'tool_calls',
        usage: USAGE,
      },
      { role: 'tool_result', call_id: 'a', name: 'rye_bash', content: [], outcome: 'ok' },
    ],
    tools: [
      { name: 'rye_bash', description: '', input_schema: {} },
      { name: 'rye_search', description: '', input_schema: {} },
    ],
    max_tokens: 1,
    thinking: 'off',
    cache: false,
    tool_choice: { name: 'rye_bash' },
  };
  const received: ModelEvent[] = [];
  for await (const event of provider.stream(request, new AbortController().signal)) {
    received.push(event);
  }
  return { requests, received };
}

// Requirement: tool-aliases
it('appear in requests only', async () => {
  const [request] = (await through([])).requests;
  expect(request?.tools.map(({ name }) => name)).toEqual(['Bash', 'rye_search']);
  expect(request?.tool_choice).toEqual({ name: 'Bash' });
  expect(JSON.stringify(request?.messages)).not.toContain('rye_bash');
});

// Requirement: alias-resolution
it('come back as the names that the thread knows', async () => {
  const { received } = await through([
    { type: 'toolcall_start', call_id: 'b', name: 'Bash' },
    { type: 'toolcall_start', call_id: 'c', name: 'rye_bash' },
    { type: 'finish', reason: 'tool_calls', content: [{ ...CALL, name: 'Bash' }] },
  ]);
  expect(received).toMatchObject([
    { name: 'rye_bash' },
    { name: 'rye_bash' },
    { content: [{ name: 'rye_bash' }] },
  ]);
});

// Requirement: record-without-alias
it('a thread records no alias', async () => {
  const lab = await libraryLab([calls(toolUse('List', {}, 'a')), reply('Done.')]);
  await lab.directive('work', ['rye/file-system/ls']);
  const lines: string[] = [];
  const outcome = await lab.open().run({
    directiveId: 'team/work',
    behavior: { tool_aliases: { 'rye/file-system/ls': 'List' } },
    onEvent: (event) => lines.push(JSON.stringify(event)),
  });
  expect(outcome.kind).toBe('completed');
  const [first, second] = lab.server.requests.map(({ body }) => JSON.stringify(body));
  expect(first).toContain('"name":"List"');
  expect(second).toContain('"type":"tool_use","id":"a","name":"List"');
  expect(lines.join('\n')).toContain('"name":"rye_file_system_ls"');
  expect(lines.join('\n')).not.toContain('"List"');
});

it('appear in the catalog and in search results, and find tools', async () => {
  const search = createToolSearch(
    [{ id: 'rye/bash', name: 'rye_bash', description: 'Runs.', input_schema: {} }],
    new Set(),
    ALIASES,
  );
  const context = { callId: 'a', threadId: 't', projectPath: '.', progress: () => undefined };
  const { signal } = new AbortController();
  const found = await search.execute({ names: ['Bash'] }, { ...context, signal });
  expect(found).toMatchObject({ is_error: false, data: { tools: ['rye_bash'] } });
  expect(JSON.stringify(found.content)).toContain('<tool name=\\"Bash\\">');
});

it('that cannot be told apart are refused', async () => {
  const lab = await libraryLab();
  await lab.directive('work', ['rye/file-system/ls', 'rye/file-system/glob']);
  const plan = async (alias: string) =>
    await lab.open().threads.plan({
      directiveId: 'team/work',
      behavior: { tool_aliases: { 'rye/file-system/ls': alias } },
    });
  await expect(plan('rye_file_system_glob')).rejects.toMatchObject({ code: 'wire_name_collision' });
  await expect(plan('tool_search')).rejects.toMatchObject({ code: 'wire_name_collision' });
});
