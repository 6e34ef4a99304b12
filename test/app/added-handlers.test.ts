import { describe, expect, it } from 'vitest';
import type { HandlerMap } from '../../src/kernel/hooks/handlers.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

const WORK = { directiveId: 'team/work' };
const LS = 'rye/file-system/ls';
const BLOCK: HandlerMap = { tool_gate: () => ({ block: 'not now' }) };

const ls = (id: string) => calls(toolUse('rye_file_system_ls', {}, id));

describe('handlers that are added later', () => {
  // Requirement: handlers-added-later, late-handlers
  it('decide and see from the next call on, until they are removed', async () => {
    const seen: string[] = [];
    let remove: (() => void) | undefined;
    const lab = await libraryLab(({ index }) => {
      if (index === 1) {
        remove = run.addHandlers({
          ...BLOCK,
          tool_settled: ({ payload }) => void seen.push(`${payload.call_id} ${payload.outcome}`),
          thread_started: () => void seen.push('started'),
        });
      }
      if (index === 2) remove?.();
      return index < 3 ? ls(`call${index}`) : reply('Done.');
    });
    await lab.directive('work', [LS]);
    const run = lab.open().start(WORK);
    expect(await run.outcome).toMatchObject({ kind: 'completed' });
    expect(seen).toEqual(['call1 blocked']);
    expect(JSON.stringify(lab.server.requests[2]?.body.messages.at(-1))).toContain(
      'Blocked: not now',
    );
    expect(JSON.stringify(lab.server.requests[3]?.body.messages.at(-1))).not.toContain('Blocked');
  });

  it('of rye count for each of its runs and for their children', async () => {
    const child = { item_type: 'directive', item_id: 'team/child', parameters: {} };
    const lab = await libraryLab([
      calls(toolUse('rye_execute', child, 'a')),
      ls('b'),
      reply('The child is done.'),
      reply('Done.'),
      ls('c'),
      reply('Done.'),
    ]);
    await lab.directive('child', [LS]);
    const execute = `<execute><directive>team/child</directive><tool>${LS}</tool></execute>`;
    await lab.directive('work', [], { metadata: `<permissions>${execute}</permissions>` });
    const rye = lab.open();
    const refused: string[] = [];
    const remove = rye.addHandlers({
      tool_gate: ({ call_id: id, tool }) => {
        if (tool !== LS) return undefined;
        refused.push(id);
        return { block: 'not now' };
      },
    });
    await rye.run(WORK);
    expect(refused).toEqual(['b']);
    remove();
    remove();
    await rye.run(WORK);
    expect(refused).toEqual(['b']);
  });

  it('that decide are not lost in a process that would not have them', async () => {
    const lab = await libraryLab();
    await lab.directive('work');
    const rye = lab.open();
    const remove = rye.addHandlers(BLOCK);
    expect((await rye.threads.plan(WORK)).program?.handlers).toEqual(['tool_gate']);
    await expect(rye.children.launch(WORK)).rejects.toMatchObject({ code: 'program_required' });
    remove();
    expect((await rye.threads.plan(WORK)).program).toBeUndefined();
  });

  it('with a name that does not exist are refused', async () => {
    const lab = await libraryLab();
    const rye = lab.open();
    const misspelled = { tool_gates: () => ({ block: 'no' }) } as HandlerMap;
    const refusal = expect.objectContaining({
      code: 'hook_invalid',
      hint: 'Did you mean tool_gate?',
    });
    expect(() => rye.addHandlers(misspelled)).toThrow(refusal);
    const run = rye.start({ directiveId: 'team/none' });
    expect(() => run.addHandlers(misspelled)).toThrow(refusal);
    await run.outcome;
  });
});
