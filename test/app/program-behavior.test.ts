import { describe, expect, it } from 'vitest';
import type { ProgramBehavior } from '../../src/kernel/app/program-behavior.ts';
import type {
  BudgetContext,
  HandlerMap,
  ThinkingContext,
} from '../../src/kernel/hooks/handlers.ts';
import { type MockTurn, mockModel } from '../../testing/index.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

const WORK = { directiveId: 'team/work', provider: 'mock' };
const LS = 'rye/file-system/ls';

const ls = (path: string): MockTurn => ({
  calls: [{ tool: 'rye_file_system_ls', input: { path } }],
});

/** A project whose model lists these folders, one in a turn. */
async function lister(paths: readonly string[], metadata = '') {
  const lab = await libraryLab();
  await lab.directive('work', [], {
    metadata: `<permissions><execute><tool>${LS}</tool></execute></permissions>${metadata}`,
  });
  const model = mockModel([...paths.map(ls), 'Done.', 'Resumed.']);
  const outcomes: string[] = [];
  const handlers: HandlerMap = {
    tool_settled: ({ payload }) => void outcomes.push(payload.outcome),
  };
  const open = (behavior?: ProgramBehavior) =>
    lab.open({
      providers: { mock: model.kind },
      preset: { handlers, ...(behavior && { behavior }) },
    });
  return { lab, model, outcomes, open };
}

describe('a budget that a function decides about', () => {
  // Requirement: tool-call-cap-action
  it('asks it about each call beyond the number, with the state of the run', async () => {
    const { model, outcomes, open } = await lister(['.', '.ai', '.ai/config', '..']);
    const asked: BudgetContext[] = [];
    const rye = open();
    await rye.run({
      ...WORK,
      behavior: {
        tool_budgets: {
          [LS]: {
            max: 1,
            on_exceed: (call) => {
              asked.push(call);
              if (call.input['path'] === '..') return { mode: 'block', message: 'Stay here.' };
              return { mode: 'steer', message: 'Soon enough.' };
            },
          },
        },
      },
    });
    expect(outcomes).toEqual(['ok', 'ok', 'ok', 'blocked']);
    expect(asked.map(({ tool, count, max, turn }) => [tool, count, max, turn])).toEqual([
      [LS, 1, 1, 2],
      [LS, 2, 1, 3],
      [LS, 3, 1, 4],
    ]);
    const last = JSON.stringify(model.requests.at(-1)?.messages);
    expect(last.split('Soon enough.')).toHaveLength(2);
    expect(last).toContain('Blocked: Stay here.');
  });

  it.each<[string, () => unknown]>([
    ['returns nothing', () => undefined],
    ['fails', () => Promise.reject(new Error('no idea'))],
    ['returns something else', () => ({ mode: 'maybe' })],
  ])('refuses the call if it %s', async (_, on_exceed) => {
    const { outcomes, open } = await lister(['.', '.ai']);
    const budget = { max: 1, on_exceed: on_exceed as () => 'block' };
    await open().run({ ...WORK, behavior: { tool_budgets: { rye_file_system_ls: budget } } });
    expect(outcomes).toEqual(['ok', 'blocked']);
  });

  it('of a preset gives way to a number of the run', async () => {
    const { outcomes, open } = await lister(['.', '.ai']);
    const rye = open({ tool_budgets: { [LS]: { max: 1, on_exceed: () => 'steer' } } });
    await rye.run({ ...WORK, behavior: { tool_budgets: { [LS]: 1 } } });
    expect(outcomes).toEqual(['ok', 'blocked']);
  });

  it('is not lost in another process, and counts again in a run that this program resumes', async () => {
    const { lab, outcomes, open } = await lister(['.', '.ai']);
    const behavior: ProgramBehavior = {
      tool_budgets: { [LS]: { max: 0, on_exceed: ({ count }) => (count < 1 ? 'steer' : 'block') } },
    };
    const rye = open(behavior);
    await expect(rye.children.launch(WORK)).rejects.toMatchObject({
      code: 'program_required',
      message: expect.stringContaining('tool_budget') as string,
    });
    const { threadId } = await rye.run({ ...WORK, limits: { turns: 1 } });
    expect(outcomes).toEqual(['ok']);
    const again = { threadId: String(threadId), limits: { turns: 2 } };
    await expect(lab.open().recovery.resume(again)).rejects.toMatchObject({
      code: 'program_required',
    });
    await open(behavior).recovery.resume(again);
    expect(outcomes).toEqual(['ok', 'ok']);
  });
});

describe('thinking that goes down', () => {
  // Requirement: thinking-decreases
  it('asks a function before each request, which cannot raise it', async () => {
    const { model, open } = await lister(['.', '.', '.']);
    const states: ThinkingContext[] = [];
    const outcome = await open().run({
      ...WORK,
      behavior: {
        thinking: 'medium',
        thinking_decay: (state) => {
          states.push(state);
          return ([undefined, 'high', 'low', 'off'] as const)[state.run_turn - 1];
        },
      },
    });
    expect(outcome.kind).toBe('completed');
    expect(model.requests.map(({ thinking }) => thinking)).toEqual([
      'medium',
      'medium',
      'low',
      'off',
    ]);
    expect(states.map(({ turn, run_turn: runTurn, level }) => [turn, runTurn, level])).toEqual(
      [1, 2, 3, 4].map((turn) => [turn, turn, 'medium']),
    );
  });

  it('leaves the level if the function fails', async () => {
    const { model, open } = await lister([]);
    const thinking_decay = (): never => {
      throw new Error('no idea');
    };
    await open().run({ ...WORK, behavior: { thinking: 'low', thinking_decay } });
    expect(model.requests.map(({ thinking }) => thinking)).toEqual(['low']);
  });

  // Requirement: thinking-decreases
  it('goes down turn by turn with after_turns, in a directive too, and is in the log', async () => {
    const { model, open } = await lister(
      ['.', '.', '.'],
      '<behavior thinking="high"><thinking_decay after_turns="1" floor="low" /></behavior>',
    );
    const rye = open();
    const { threadId } = await rye.run(WORK);
    const resumed = { threadId: String(threadId), message: 'Again.' };
    expect(await rye.recovery.resume(resumed)).toMatchObject({ result: 'Resumed.' });
    expect(model.requests.map(({ thinking }) => thinking)).toEqual([
      'high',
      'medium',
      'low',
      'low',
      'high',
    ]);
  });

  it('is in the log, and reaches the model', async () => {
    const call = (id: string) => calls(toolUse('rye_file_system_ls', {}, id));
    const lab = await libraryLab([call('a'), call('b'), reply('Done.')]);
    await lab.directive('work', [LS]);
    const logged: unknown[] = [];
    await lab.open().run({
      directiveId: 'team/work',
      behavior: { thinking: 'high', thinking_decay: { after_turns: 1 } },
      handlers: { turn_started: ({ payload }) => void logged.push(payload.request?.thinking) },
    });
    expect(logged).toEqual([undefined, 'medium', 'low']);
    expect(lab.server.requests.map(({ body }) => body.output_config?.effort)).toEqual([
      'high',
      'medium',
      'low',
    ]);
  });
});

describe('functions elsewhere', () => {
  const fn = (): number => 5;

  it.each<[string, object]>([
    ['a member', { max_tokens: fn }],
    ['a part of a member', { tool_budgets: { [LS]: { max: fn } } }],
    ['a budget', { tool_budgets: { [LS]: fn } }],
  ])('%s of a run is a usage error', async (_, behavior) => {
    const { open } = await lister([]);
    const outcome = await open().run({ ...WORK, behavior });
    expect(outcome).toMatchObject({
      kind: 'failed',
      error: { code: 'usage', message: expect.stringContaining('is a function') as string },
    });
  });

  it('in a directive from code are refused, and so is a wrong value of a run', async () => {
    const { open } = await lister([]);
    const rye = open();
    const declaration = {
      id: 'coded',
      description: 'Work.',
      instructions: 'Work.',
      behavior: { thinking_decay: fn } as object,
    };
    await expect(rye.defineDirective(declaration)).rejects.toMatchObject({ code: 'usage' });
    const outcome = await rye.run({
      ...WORK,
      behavior: { tool_budgets: { [LS]: { max: 1, on_exceed: 'warn' as 'block' } } },
    });
    expect(outcome).toMatchObject({
      error: { code: 'usage', message: expect.stringContaining('on_exceed is "warn"') as string },
    });
  });
});
