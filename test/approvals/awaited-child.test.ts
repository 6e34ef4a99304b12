import { expect, it } from 'vitest';
import { directive } from '../attacks/lab.ts';
import { starts } from './family.ts';
import { calls, house, marks, payloads } from './house.ts';

it('a call that a person agreed to asks once, also while its child waits for people', async () => {
  const here = await house(calls(starts('pusher')), calls(marks('out')));
  here.signed(
    'directives/parent.md',
    directive('parent', {
      limits: 'turns="6" spend="0.50"',
      permissions:
        '<execute><directive ask="true">pusher</directive><tool>rye/bash</tool></execute><acknowledge risk="elevated">Pushes.</acknowledge>',
    }),
  );
  const { threadId, id } = await here.asks('parent');
  await here.json(['approve', id, '--no-resume']);
  await here.json(['threads', 'resume', threadId], 8);
  const [child, ...more] = await here.waiting();
  expect([child?.thread_id === threadId, more]).toEqual([false, []]);
  // nothing is decided: it only waits again
  await here.json(['threads', 'resume', threadId], 8);
  await here.json(['approve', child?.id ?? '']);
  await here.until(threadId, 'completed');
  expect(here.file('out')).toBe('ran\n');
  expect(payloads(here.log(threadId), 'approval_requested')).toHaveLength(1);
});
