import { expect, it } from 'vitest';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import { toText } from '../../src/kernel/core/json.ts';
import type { ApprovalPort, ApprovalVerdict, Review } from '../../src/kernel/loop/ports.ts';
import { type QuestionEnd, textOutput } from '../../src/kernel/tools/tool.ts';
import { answers, play, resultText, type Script, toolOf } from './scripted.ts';

const draft = (text: string): EventDraft => ({ event_type: 'note', payload: { text } });

interface Asking {
  readonly verdict?: ApprovalVerdict;
  readonly review?: Review;
  readonly isInline?: boolean;
  readonly questions?: number;
  /** The call does not wait any more. */
  readonly isOver?: boolean;
}

/** Plays a call that asks, and a call after it. Returns how its questions ended, and what people and the log were told. */
async function ask({ verdict, review, isInline = true, questions = 1, isOver = false }: Asking) {
  const ends: QuestionEnd[] = [];
  const steps: string[] = [];
  const asked = { kind: 'asked', id: 'apr-1', drafts: [draft('asked')] } as const;
  const approvals: ApprovalPort = {
    review: async ([one]) =>
      one?.callId.includes('question') === true ? [review ?? asked] : [{ kind: 'allowed' }],
    publish: async (ids) => void steps.push(`publish ${ids.join()}`),
    waitsInline: async () => isInline,
    wait: async (_id, { callId, input }) => {
      steps.push(`wait ${callId} ${toText(input['question'] ?? null)}`);
      return verdict ?? { kind: 'waiting' };
    },
    confirm: async () => ({ kind: 'voided', drafts: [] }),
    withdraw: async (ids, reason) => {
      steps.push(`withdraw ${ids.join()}: ${reason}`);
      return [draft('withdrawn')];
    },
    pending: () => 0,
  };
  const asks = toolOf('rye/ask', {
    run: async (_input, context) => {
      const signal = isOver ? AbortSignal.abort() : context.signal;
      for (let at = 1; at <= questions; at += 1) {
        ends.push(
          (await context.ask?.({ text: `Which ${at}?`, schema: {} }, signal)) ?? {
            kind: 'cancelled',
          },
        );
      }
      return textOutput('asked');
    },
  });
  const script: Script = {
    tools: { rye_ask: asks },
    turns: [answers('', [{ id: 'a', name: 'rye_ask' }]), answers('Done.')],
    ports: { approvals },
  };
  const played = await play(script);
  const notes = played.events.flatMap(({ event_type: type, payload }) =>
    type === 'note' ? [payload.text] : [],
  );
  const told = played.hooks
    .map(({ event }) => event)
    .filter((event) => event.startsWith('approval'));
  return { ...played, ends, steps, notes, told };
}

const no = { reason: 'no', drafts: [draft('decided')] } as const;

it.each<[string, ApprovalVerdict, QuestionEnd, string]>([
  [
    'answered',
    { kind: 'answered', answer: 7, drafts: [draft('decided')] },
    { kind: 'answered', answer: 7 },
    'completed',
  ],
  ['declined', { kind: 'denied', ...no, ends: false }, { kind: 'declined' }, 'completed'],
  [
    'not answered in time',
    { kind: 'expired', ...no, ends: false },
    { kind: 'cancelled' },
    'completed',
  ],
  [
    'not answered in time, which ends the thread',
    { kind: 'expired', ...no, ends: true },
    { kind: 'cancelled' },
    'error',
  ],
  ['withdrawn', { kind: 'withdrawn', ...no, ends: false }, { kind: 'cancelled' }, 'completed'],
])('a question of a call is %s', async (_, verdict, end, outcome) => {
  const played = await ask({ verdict });
  expect([played.ends, played.outcome.kind]).toEqual([[end], outcome]);
  expect(played.steps).toEqual(['publish apr-1', 'wait a.question-1 Which 1?']);
  expect(played.notes).toEqual(['asked', 'decided']);
  expect(played.told).toEqual(['approval_requested', 'approval_decided']);
  // the call that asked ends as any other
  expect(resultText(played.events, 'a')).toBe('asked');
});

it('a question that no one answers is taken back', async () => {
  const { ends, steps, notes } = await ask({});
  expect(ends).toEqual([{ kind: 'cancelled' }]);
  expect(steps.at(-1)).toBe('withdraw apr-1: no person answered in time');
  expect(notes).toEqual(['asked', 'withdrawn']);
});

it.each<[string, Asking, RegExp | undefined]>([
  ['no person can be asked here', { isInline: false }, /no person can be asked here/],
  [
    'no person may decide',
    { review: { kind: 'unreachable', reason: 'no approver', drafts: [draft('void')] } },
    /no approver/,
  ],
  ['the call that asks is over', { isOver: true }, undefined],
])('a question is cancelled at once if %s', async (_, asking, why) => {
  const { ends, steps, notes } = await ask(asking);
  expect([ends, steps]).toEqual([[{ kind: 'cancelled' }], []]);
  if (why === undefined) expect(notes).toEqual([]);
  else expect(notes.at(-1)).toMatch(why);
});

it('a call asks twenty questions at most', async () => {
  const verdict = { kind: 'answered', answer: 'x', drafts: [] } as const;
  const { ends, steps } = await ask({ verdict, questions: 22 });
  expect(ends.map(({ kind }) => kind).filter((kind) => kind === 'answered')).toHaveLength(20);
  expect(steps.filter((step) => step.startsWith('wait'))).toHaveLength(20);
});
