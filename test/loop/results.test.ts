import { expect, it } from 'vitest';
import { contentBytes } from '../../src/kernel/core/message.ts';
import { textOutput } from '../../src/kernel/tools/tool.ts';
import { answers, play, resultText, toolOf } from './scripted.ts';

// Requirement: size-unit, sizes-reported
it('counts bytes of text and characters of images', async () => {
  const content = [
    { type: 'text', text: 'é€' },
    { type: 'image', media_type: 'image/png', data: 'AAAA' },
  ] as const;
  expect(contentBytes(content)).toBe(9);
  const { events, hooks } = await play({
    tools: {
      rye_see: toolOf('rye/see', { run: () => Promise.resolve({ content, is_error: false }) }),
    },
    turns: [answers('', [{ id: 'a', name: 'rye_see' }]), answers('Done.')],
  });
  const settled = events.find(({ event_type }) => event_type === 'tool_settled');
  expect(settled?.payload).toMatchObject({ output_bytes: 9 });
  expect(hooks.find(({ event }) => event === 'tool_after')?.context).toMatchObject({
    output_bytes: 9,
  });
});

// Requirement: large-result-artifact
it('of a skill stays whole, as instructions must, up to 128 KiB', async () => {
  const bytes = 128 * 1024;
  const use = toolOf('skills/use', {
    run: ({ name }) => Promise.resolve(textOutput('x'.repeat(bytes + (name === 'huge' ? 1 : 0)))),
  });
  const { events } = await play({
    tools: { skills_use: use },
    turns: [
      answers('', [
        { id: 'a', name: 'skills_use', input: { name: 'long' } },
        { id: 'b', name: 'skills_use', input: { name: 'huge' } },
      ]),
      answers('Done.'),
    ],
  });
  expect(resultText(events, 'a')).toHaveLength(bytes);
  expect(resultText(events, 'b')).toContain('<persisted-output');
});

// Requirement: artifact-exemptions
it('goes to a file by the threshold of the behavior, unless the tool is exempt', async () => {
  const long = toolOf('rye/long', { run: () => Promise.resolve(textOutput('x'.repeat(300))) });
  const turns = [answers('', [{ id: 'a', name: 'rye_long' }]), answers('Done.')];
  const moved = await play({
    plan: { behavior: { persist_threshold: 200 } },
    tools: { rye_long: long },
    turns,
  });
  expect(resultText(moved.events, 'a')).toContain('path="artifacts/a.txt"');
  const exempt = await play({
    plan: { behavior: { persist_threshold: 200, persist_exclude_tools: ['rye/long'] } },
    tools: { rye_long: long },
    turns,
  });
  expect(resultText(exempt.events, 'a')).toBe('x'.repeat(300));
});
