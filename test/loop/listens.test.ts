import { expect, it } from 'vitest';
import { answers, play, toolOf } from './scripted.ts';

it('hooks are asked only about events that a hook listens to', async () => {
  const asked: string[] = [];
  const { outcome, events } = await play({
    tools: { rye_ls: toolOf('rye/ls') },
    turns: [answers('', [{ id: 'a', name: 'rye_ls' }]), answers('Done.')],
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
        gate: () => Promise.reject(new Error('no hook listens to the gate')),
      },
    },
  });
  expect(outcome.kind).toBe('completed');
  expect(events.find(({ event_type }) => event_type === 'tool_settled')?.payload).toMatchObject({
    outcome: 'ok',
  });
  expect(asked).toEqual(['tool_after', 'after_step']);
});
