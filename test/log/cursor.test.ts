import { describe, expect, it } from 'vitest';
import { advance, LOG_START, type LogCursor } from '../../src/kernel/log/cursor.ts';
import { delta, place, userMessage } from './support.ts';

const EVENTS = place([
  userMessage('a'),
  delta('x'),
  userMessage('b'),
  { event_type: 'leaf', payload: { target_id: 'e1' } },
  delta('y'),
  { event_type: 'message', payload: { message: { role: 'user', content: [] } }, id: 'kept' },
]);

describe('the cursor', () => {
  it('numbers events from 1 and gives entries their place', () => {
    expect(EVENTS.map(({ seq, id, parent_id }) => [seq, id, parent_id])).toEqual([
      [1, 'e1', null],
      [2, undefined, undefined],
      [3, 'e2', 'e1'],
      [4, 'e3', 'e2'],
      [5, undefined, undefined],
      [6, 'kept', 'e1'],
    ]);
  });

  it('is found again by reading what it placed', () => {
    const leaves = EVENTS.reduce<readonly LogCursor[]>(
      (cursors, event) => [...cursors, advance(cursors.at(-1) ?? LOG_START, event)],
      [],
    );
    expect(leaves.map(({ leafId }) => leafId)).toEqual(['e1', 'e1', 'e2', 'e1', 'e1', 'kept']);
    expect(leaves.at(-1)?.seq).toBe(6);
  });
});
