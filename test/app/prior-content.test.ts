import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { ResultContext } from '../../src/kernel/hooks/handlers.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';

let lab: Lab;
beforeEach(async () => {
  lab = await openLab();
});
afterEach(async () => await lab.remove());

const write = (file: string, content: string, id: string) =>
  toolUse('rye_file_system_write', { path: file, content }, id);

it('handlers and hooks get what a file had before a write or an edit; the model and the log do not', async () => {
  const secret = 'WAS HERE BEFORE';
  writeFileSync(path.join(lab.project, 'old.txt'), `${secret} é`);
  writeFileSync(path.join(lab.project, 'big.txt'), 'é'.repeat(200_000));
  const edit = { old_string: 'one', new_string: 'two' };
  const server = await lab.model([
    calls(
      write('old.txt', 'one', 'id_1'),
      write('new.txt', 'x', 'id_2'),
      write('big.txt', 'x', 'id_3'),
    ),
    calls(toolUse('rye_file_system_edit', { path: 'old.txt', ...edit }, 'id_4')),
    calls(
      toolUse(
        'rye_file_system_multi_edit',
        { path: 'old.txt', edits: [{ ...edit, old_string: 'two', new_string: 'six' }] },
        'id_5',
      ),
      toolUse('rye_file_system_edit', { path: 'old.txt', ...edit }, 'id_6'),
      toolUse('rye_file_system_read', { path: 'old.txt' }, 'id_7'),
    ),
    reply('Done.'),
  ]);
  lab.signed(
    'directives/work.md',
    directive('work', {
      limits: 'turns="6" spend="0.50"',
      permissions: '<execute><tool>rye/file-system/*</tool></execute>',
    }),
  );
  lab.signed(
    'config/agent/hooks.yaml',
    `hooks:
  - id: prior
    event: tool_after
    condition: { path: prior_content, op: contains, value: WAS }
    action: { emit: prior_seen, data: { bytes: '\${prior_bytes}' } }
`,
  );
  const seen = new Map<string, ResultContext>();
  const handlers = {
    tool_transform: (context: ResultContext) => void seen.set(context.call_id, context),
  };
  const model = { model: 'claude-haiku-5-5', provider: 'anthropic' };
  const request = { directiveId: 'work', threadId: 'w', ...model, handlers };
  expect(await lab.rye().run(request)).toMatchObject({ kind: 'completed' });
  const prior = (id: string) => [seen.get(id)?.prior_content, seen.get(id)?.prior_bytes];
  expect(prior('id_1')).toEqual([`${secret} é`, 18]);
  expect(prior('id_2')).toEqual([null, 0]);
  expect(prior('id_3')).toEqual(['é'.repeat(131_072), 400_000]);
  expect(prior('id_4')).toEqual(['one', 3]);
  expect(prior('id_5')).toEqual(['two', 3]);
  // a refused edit and a read changed nothing
  expect([prior('id_6'), prior('id_7')]).toEqual([
    [undefined, undefined],
    [undefined, undefined],
  ]);
  const log = JSON.stringify(await lab.events('w'));
  expect(log).toContain('"custom_type":"prior_seen","data":{"bytes":18');
  expect(log).not.toContain(secret);
  expect(JSON.stringify(server.requests.map(({ body }) => body))).not.toContain(secret);
});
