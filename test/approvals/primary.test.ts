import { expect, it } from 'vitest';
import { directive } from '../attacks/lab.ts';
import { calls, house, payloads, toolUse } from './house.ts';

const NOTES =
  '---\nname: notes\ntitle: Notes\nversion: "1.0.0"\nentry_type: note\n---\nPush on Mondays.\n';

it('an ask on rye/* applies to the tools of rye, not to items that rye/fetch and rye/sign act on', async () => {
  const fetched = toolUse('rye_fetch', { item_type: 'knowledge', item_id: 'notes' });
  const signed = toolUse('rye_sign', { item_type: 'knowledge', item_id: 'notes' });
  const here = await house(calls(fetched, signed));
  here.signed('knowledge/notes.md', NOTES);
  here.signed(
    'directives/reader.md',
    directive('reader', {
      limits: 'turns="6" spend="0.10"',
      permissions:
        '<execute><tool ask="true">rye/*</tool></execute><fetch><knowledge>*</knowledge></fetch><sign><knowledge>*</knowledge></sign><acknowledge risk="elevated">Tests.</acknowledge>',
    }),
  );
  const { thread_id: id } = await here.json(['run', 'reader']);
  const threadId = String(id);
  const log = here.log(threadId);
  expect(payloads(log, 'tool_call_start').map(({ tool }) => tool)).toEqual([
    'rye/fetch',
    'rye/sign',
  ]);
  expect(payloads(log, 'tool_settled')).toMatchObject([{ outcome: 'ok' }, { outcome: 'ok' }]);
  expect(payloads(log, 'approval_requested')).toEqual([]);
  expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
}, 240_000);

it('an ask on an item asks before rye/fetch reads it, and verification counts the decision', async () => {
  const fetched = toolUse('rye_fetch', { item_type: 'knowledge', item_id: 'notes' });
  const here = await house(calls(fetched));
  here.signed('knowledge/notes.md', NOTES);
  here.signed(
    'directives/reader.md',
    directive('reader', {
      limits: 'turns="6" spend="0.10"',
      permissions: '<fetch><knowledge ask="true">*</knowledge></fetch>',
    }),
  );
  const asked = await here.asks('reader');
  expect(JSON.stringify(here.bodies)).not.toContain('Mondays');
  await here.json(['approve', asked.id, '--no-resume']);
  await here.json(['threads', 'resume', asked.threadId]);
  expect(JSON.stringify(here.bodies.at(-1)?.messages)).toContain('Mondays');
  const verified = await here.json(['verify', 'thread', asked.threadId]);
  expect(JSON.stringify(verified)).toContain('1 verified');
}, 240_000);
