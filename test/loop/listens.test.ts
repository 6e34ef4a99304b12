import { expect, it } from 'vitest';
import { play, says, toolOf } from './scripted.ts';

it('hooks are asked of the events that somebody listens to, and of no other', async () => {
  const asked: string[] = [];
  const { outcome, events } = await play({
    tools: { rye_ls: toolOf('rye/ls') },
    turns: [says('', [{ id: 'a', name: 'rye_ls' }]), says('Done.')],
    ports: {
      hooks: {
        listens: (event) => event === 'tool_after' || event === 'after_step',
        control: (event) => {
          asked.push(event);
          return Promise.resolve({ fired: [] });
        },
        observe: (event) => {
          asked.push(event);
          return Promise.resolve({ fired: [] });
        },
        gate: () => Promise.reject(new Error('nobody listens to the gate')),
      },
    },
  });
  expect(outcome.kind).toBe('completed');
  expect(events.find(({ event_type }) => event_type === 'tool_settled')?.payload).toMatchObject({
    outcome: 'ok',
  });
  expect(asked).toEqual(['tool_after', 'after_step']);
});
