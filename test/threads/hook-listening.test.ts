import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import type { LogEvent, UnknownEvent } from '../../src/kernel/core/events.ts';
import { libraryLab } from '../app/library-lab.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';

const EVENTS = ['thread_started', 'tool_gate', 'tool_after', 'after_step', 'after_complete'];

it('a run asks the hooks of every event that one is on for, and none that is switched off', async () => {
  const lab = await libraryLab([
    calls(toolUse('rye_file_system_ls', {}, 'a')),
    calls(toolUse('rye_file_system_glob', { pattern: '*' }, 'b')),
    reply('Done.'),
  ]);
  const hooks = [
    ...EVENTS.map((event) => ({ id: `on_${event}`, event, action: { emit: 'seen' } })),
    { id: 'off', event: 'tool_gate', enabled: false, action: { control: 'fail', error: 'off' } },
    {
      id: 'no_glob',
      event: 'tool_gate',
      condition: { path: 'tool', op: 'eq', value: 'rye/file-system/glob' },
      action: { control: 'fail', error: 'no globbing here' },
    },
  ];
  mkdirSync(path.join(lab.project, '.ai/config/agent'), { recursive: true });
  writeFileSync(path.join(lab.project, '.ai/config/agent/hooks.yaml'), JSON.stringify({ hooks }));
  const rye = lab.open();
  await rye.items.sign('config', 'agent/hooks');
  await lab.directive('work', ['rye/file-system/ls', 'rye/file-system/glob']);
  const events: (LogEvent | UnknownEvent)[] = [];
  const run = await rye.run({
    directiveId: 'team/work',
    behavior: { nudge: false },
    onEvent: (event) => events.push(event),
  });
  expect(run.kind).toBe('completed');
  const fired = events.flatMap(({ event_type: type, payload }) =>
    type === 'hook_fired' ? [payload as { id: string; event: string }] : [],
  );
  const own = fired.filter(({ id }) => id.startsWith('on_'));
  expect(new Set(own.map(({ event }) => event))).toEqual(new Set(EVENTS));
  expect(fired.some(({ id }) => id === 'off')).toBe(false);
  const results = JSON.stringify(lab.server.requests.at(-1)?.body.messages);
  expect(results).toContain('Blocked: no globbing here');
});

it('the calls of hooks have other ids in each run of a thread', async () => {
  const lab = await libraryLab([reply('One.'), reply('Two.')]);
  const look = { primary: 'execute', item_type: 'tool', item_id: 'rye/file-system/ls' };
  const hooks = [{ id: 'look', event: 'after_complete', action: { ...look, params: {} } }];
  mkdirSync(path.join(lab.project, '.ai/config/agent'), { recursive: true });
  writeFileSync(path.join(lab.project, '.ai/config/agent/hooks.yaml'), JSON.stringify({ hooks }));
  const rye = lab.open();
  await rye.items.sign('config', 'agent/hooks');
  await lab.directive('work', ['rye/file-system/ls']);
  const ids: string[] = [];
  const onEvent = ({ event_type: type, payload }: LogEvent | UnknownEvent): void => {
    if (type === 'tool_call_start') ids.push((payload as { call_id: string }).call_id);
  };
  const behavior = { nudge: false };
  await rye.run({ directiveId: 'team/work', threadId: 'twice', behavior, onEvent });
  await rye.recovery.resume({ threadId: 'twice', message: 'Again.', onEvent });
  expect(ids).toHaveLength(2);
  expect(new Set(ids).size).toBe(2);
});
