import { expect, it } from 'vitest';
import { entryOf, requestOf } from '../../src/features/schedules/scheduled-run.ts';

it('a thread of a schedule has no parent, also if a thread started the loop', () => {
  const run = { directiveId: 'team/report', inputs: { who: 'Ada' }, label: 'nightly' };
  const request = requestOf(entryOf({ name: 'nightly', cron: '0 3 * * *', run }));
  // an absent parent would be that of the environment
  expect(request).toEqual({ ...run, parentThreadId: '' });
});
