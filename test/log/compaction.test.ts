import { readFileSync } from 'node:fs';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { EventDraft, EventPayloads } from '../../src/kernel/core/events.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { type Message, textOf, toolCallsOf } from '../../src/kernel/core/message.ts';
import type { Usage } from '../../src/kernel/core/usage.ts';
import {
  type CompactionPlan,
  type CompactionSizes,
  fittingSizes,
  planCompaction,
} from '../../src/kernel/log/compaction.ts';
import { foldContext } from '../../src/kernel/log/context.ts';
import { filesAsDetails } from '../../src/kernel/log/summary-prompt.ts';
import { buildTree, isKnown, pathTo } from '../../src/kernel/log/tree.ts';
import { place, userMessage } from './support.ts';

const SIZES: CompactionSizes = { contextWindow: 1000, reserveTokens: 100, keepRecentTokens: 100 };
const NO_TOKENS: Usage = {
  input_tokens: 0,
  output_tokens: 0,
  cache_read_tokens: 0,
  cache_write_tokens: 0,
};

/** A text of about that many tokens; it starts with its name. */
function words(name: string, tokens: number): string {
  return name + 'x'.repeat(Math.max(0, tokens * 4 - 16 - name.length));
}

function user(name: string, tokens = 10): EventDraft {
  return userMessage(words(name, tokens));
}

interface Call {
  readonly id: string;
  readonly name?: string;
  readonly input?: JsonObject;
}

function answer(
  name: string,
  {
    tokens = 10,
    calls = [],
    usage = NO_TOKENS,
  }: { tokens?: number; calls?: Call[]; usage?: Usage } = {},
): EventDraft {
  const message: Message = {
    role: 'assistant',
    content: [
      { type: 'text', text: words(name, tokens) },
      ...calls.map(({ id, name: tool = 'look', input = {} }) => ({
        type: 'tool_call' as const,
        call_id: id,
        name: tool,
        input,
      })),
    ],
    provider: 'p',
    model: 'm',
    stop_reason: calls.length > 0 ? 'tool_calls' : 'end',
    usage,
  };
  return { event_type: 'message', payload: { message } };
}

function result(
  call_id: string,
  {
    tokens = 10,
    name = 'look',
    outcome = 'ok' as const,
  }: { tokens?: number; name?: string; outcome?: 'ok' } = {},
): EventDraft {
  const message: Message = {
    role: 'tool_result',
    call_id,
    name,
    content: [{ type: 'text', text: words(`result of ${call_id}`, tokens) }],
    outcome,
  };
  return { event_type: 'message', payload: { message } };
}

function compactionOf(plan: CompactionPlan, summary: string): EventDraft {
  return {
    event_type: 'compaction',
    payload: {
      summary,
      first_kept_entry_id: plan.firstKeptEntryId,
      tokens_before: plan.tokensBefore,
      protected_entry_ids: plan.protectedIds,
    },
  };
}

function treeOf(drafts: readonly EventDraft[]) {
  return buildTree(place(drafts));
}

function planFor(drafts: readonly EventDraft[], sizes: Partial<CompactionSizes> = {}) {
  return planCompaction(treeOf(drafts), { sizes: { ...SIZES, ...sizes } });
}

/** The name with which each text starts. */
function names(messages: readonly Message[]): readonly string[] {
  return messages.map(({ content }) => textOf(content).replace(/x+$/, ''));
}

const LONG_TALK = [
  user('task'),
  answer('a1', { tokens: 60 }),
  user('u2'),
  answer('a2', { tokens: 60 }),
  user('u3'),
  answer('a3', { tokens: 60 }),
  user('u4'),
  answer('a4', { tokens: 60 }),
];

describe('a cut', () => {
  it('keeps the newest messages up to the size that is asked for', () => {
    const planned = planFor(LONG_TALK);
    expect(names(planned?.history ?? [])).toEqual(['a1', 'u2', 'a2']);
    expect(planned?.firstKeptEntryId).toBe('e5');
  });

  it('is not made where nothing would be gained', () => {
    expect(planFor([user('task'), answer('a1')])).toBeUndefined();
    expect(planFor([user('task')])).toBeUndefined();
    expect(planFor([])).toBeUndefined();
  });

  it('keeps half of a small context rather than all of it', () => {
    const planned = planFor(LONG_TALK, { keepRecentTokens: 20_000 });
    expect(planned?.firstKeptEntryId).toBeDefined();
  });

  it('never parts a call from its result', () => {
    const planned = planFor([
      user('task'),
      answer('a1', { tokens: 60 }),
      answer('a2', { tokens: 60, calls: [{ id: 'c1' }, { id: 'c2' }] }),
      result('c1', { tokens: 90 }),
      result('c2', { tokens: 90 }),
      answer('a3'),
    ]);
    // the sizes would cut between the two results: it moves on to the next place
    expect(planned?.firstKeptEntryId).toBe('e6');
    expect(names(planned?.history ?? [])).toEqual(['a1', 'a2', 'result of c1', 'result of c2']);
  });

  it('keeps the call of results that no answer has covered, however long they are', () => {
    const planned = planFor([
      user('task'),
      answer('a1', { tokens: 60 }),
      answer('a2', { calls: [{ id: 'c1' }] }),
      result('c1', { tokens: 900 }),
    ]);
    expect(planned?.firstKeptEntryId).toBe('e3');
    expect(names(planned?.history ?? [])).toEqual(['a1']);
  });

  it('never takes away an injected message that no answer has covered', () => {
    const steer: EventDraft = {
      event_type: 'custom_message',
      payload: { custom_type: 'delivery', content: words('steer', 900), display: true },
    };
    const planned = planFor([...LONG_TALK, steer, user('u5', 300)]);
    expect(planned?.firstKeptEntryId).toBe('e9');
  });

  it('splits a long turn: its first part is summarized apart', () => {
    const planned = planFor([
      user('task'),
      answer('a1'),
      user('u2'),
      answer('a2', { tokens: 120, calls: [{ id: 'c1' }] }),
      result('c1'),
      answer('a3', { tokens: 120 }),
    ]);
    expect(names(planned?.history ?? [])).toEqual(['a1']);
    expect(names(planned?.turnPrefix ?? [])).toEqual(['u2', 'a2', 'result of c1']);
    expect(planned?.firstKeptEntryId).toBe('e6');
  });

  it('of a single long turn summarizes the messages after the task', () => {
    const planned = planFor([
      user('task'),
      answer('a1', { tokens: 120, calls: [{ id: 'c1' }] }),
      result('c1'),
      answer('a2', { tokens: 120 }),
    ]);
    expect(names(planned?.history ?? [])).toEqual(['a1', 'result of c1']);
    expect(planned?.turnPrefix).toEqual([]);
    expect(planned?.task).toContain('task');
  });

  it('never falls on a result that the fold made up', () => {
    const planned = planFor([
      user('task'),
      answer('a1', { tokens: 60, calls: [{ id: 'lost' }] }),
      user('u2', 60),
      answer('a2', { tokens: 60 }),
    ]);
    expect(['e3', 'e4']).toContain(planned?.firstKeptEntryId);
  });

  // Requirement: tokens-by-utf16
  it('counts a text of another script by its bytes', () => {
    const talk = (text: string) => [
      user('task'),
      userMessage(text),
      answer('a1', { tokens: 60 }),
      user('u2', 30),
      answer('a2', { tokens: 30 }),
    ];
    const latin = planFor(talk('a'.repeat(200)))?.tokensBefore ?? 0;
    expect(planFor(talk('漢'.repeat(200)))?.tokensBefore).toBeGreaterThan(latin + 90);
  });
});

describe('what is protected', () => {
  // Requirement: trim-drops-task
  it('is the task, before the summary', () => {
    const planned = planFor(LONG_TALK);
    expect(planned?.protectedIds).toEqual(['e1']);
    const { messages } = foldContext(
      treeOf([...LONG_TALK, compactionOf(planned as CompactionPlan, 'short')]),
    );
    expect(names(messages).map((name) => name.slice(0, 8))).toEqual([
      'task',
      'What hap',
      'u3',
      'a3',
      'u4',
      'a4',
    ]);
  });

  it('is not a task that fills the window', () => {
    const planned = planFor([user('task', 500), ...LONG_TALK.slice(1)]);
    expect(planned?.protectedIds).toEqual([]);
    expect(names(planned?.history ?? [])[0]).toBe('task');
  });

  it('is not an answer that the path begins with', () => {
    const planned = planFor(LONG_TALK.slice(1));
    expect(planned?.protectedIds).toEqual([]);
    expect(planned?.task).toBeUndefined();
    expect(names(planned?.history ?? [])[0]).toBe('a1');
  });

  it('is the body of a skill, given by its tool or injected', () => {
    const injected: EventDraft = {
      event_type: 'custom_message',
      payload: { custom_type: 'skill', content: 'the body', display: false },
    };
    const marked: EventDraft = {
      event_type: 'custom_message',
      payload: { custom_type: 'x', content: 'mine', display: false, details: { protected: true } },
    };
    const drafts = [
      user('task'),
      answer('a1', { calls: [{ id: 'c1', name: 'rye_skills_use' }] }),
      result('c1', { name: 'rye_skills_use' }),
      injected,
      marked,
      ...LONG_TALK.slice(1),
    ];
    const planned = planFor(drafts);
    expect(planned?.protectedIds).toEqual(['e1', 'e3', 'e4', 'e5']);
    const { messages } = foldContext(
      treeOf([...drafts, compactionOf(planned as CompactionPlan, 'short')]),
    );
    // its call is summarized, so the body remains without it
    expect(messages[1]).toMatchObject({ role: 'user' });
    expect(names(messages).slice(1, 4)).toEqual(['result of c1', 'the body', 'mine']);
  });

  it('stays protected through the next compaction', () => {
    const first = planFor(LONG_TALK) as CompactionPlan;
    const again = planFor([
      ...LONG_TALK,
      compactionOf(first, 'first summary'),
      user('u5'),
      answer('a5', { tokens: 60 }),
      user('u6'),
      answer('a6', { tokens: 60 }),
    ]);
    expect(again?.protectedIds).toEqual(['e1']);
  });
});

describe('what is protected, through five compactions', () => {
  it('stays in the context in full, once, and in its order', () => {
    const injected: EventDraft = {
      event_type: 'custom_message',
      payload: { custom_type: 'skill', content: 'the body', display: false },
    };
    const drafts: EventDraft[] = [
      user('task'),
      answer('a1', { calls: [{ id: 'c1', name: 'rye_skills_use' }] }),
      result('c1', { name: 'rye_skills_use', tokens: 80 }),
      injected,
    ];
    for (let round = 1; round <= 5; round += 1) {
      drafts.push(user(`u${round}`), answer(`b${round}`, { tokens: 150 }));
      drafts.push(user(`v${round}`), answer(`d${round}`, { tokens: 150 }));
      drafts.push(compactionOf(planFor(drafts) as CompactionPlan, `summary ${round}`));
      const { messages } = foldContext(treeOf(drafts));
      const all = names(messages);
      expect(all.slice(0, 3)).toEqual(['task', 'result of c1', 'the body']);
      expect(all[3]).toContain(`summary ${round}`);
      expect(all.join()).not.toContain(`summary ${round - 1}`);
      expect(messages.filter(({ role }) => role === 'tool_result')).toEqual([]);
    }
  });
});

describe('a second compaction', () => {
  const first = planFor(LONG_TALK) as CompactionPlan;
  const more = [
    ...LONG_TALK,
    compactionOf(first, 'first summary'),
    user('u5'),
    answer('a5', { tokens: 60 }),
    user('u6'),
    answer('a6', { tokens: 60 }),
  ];

  // Requirement: second-compaction-forgets
  it('summarizes what the first one kept', () => {
    const again = planFor(more);
    expect(names(again?.history ?? [])).toEqual(['u3', 'a3', 'u4', 'a4']);
  });

  it('is given the summary of the first one, newest first', () => {
    expect(planFor(more)?.previousSummaries).toEqual(['first summary']);
    const second = compactionOf(planFor(more) as CompactionPlan, 'second summary');
    const third = planFor([
      ...more,
      second,
      user('u7'),
      answer('a7', { tokens: 60 }),
      user('u8'),
      answer('a8', { tokens: 60 }),
    ]);
    expect(third?.previousSummaries).toEqual(['second summary', 'first summary']);
  });

  it('right after the first one has little left to do', () => {
    const again = planFor([...LONG_TALK, compactionOf(first, 'first summary')], {
      keepRecentTokens: 500,
    });
    expect(names(again?.history ?? [])).not.toContain('a4');
  });
});

describe('files', () => {
  const at = (path: string): JsonObject => ({ path });
  const work = [
    user('task'),
    answer('a1', {
      tokens: 60,
      calls: [
        { id: 'c1', name: 'rye_file_system_read', input: at('b.ts') },
        { id: 'c2', name: 'rye_file_system_read', input: at('a.ts') },
        { id: 'c3', name: 'rye_file_system_edit', input: at('a.ts') },
        {
          id: 'c4',
          name: 'rye_execute',
          input: { item_type: 'tool', item_id: 'rye/file-system/write', parameters: at('c.ts') },
        },
      ],
    }),
    result('c1'),
    result('c2'),
    result('c3'),
    result('c4'),
    answer('a2', { tokens: 120 }),
  ];

  it('that were read and changed are listed; a changed one is not also read', () => {
    expect(planFor(work)?.files).toEqual({ read: ['b.ts'], changed: ['a.ts', 'c.ts'] });
  });

  it('are logged under the names in the documentation of the log format', () => {
    const files = { read: ['a.ts'], changed: ['b.ts'] };
    const members = Object.keys(filesAsDetails(files));
    expect(members).toEqual(['read_files', 'changed_files']);
    const page = readFileSync('docs/log-format.md', 'utf8');
    for (const name of members) expect(page).toContain(`\`${name}\``);
    expect(page).not.toContain('modified_files');
  });

  it('are carried forward from the last compaction and from branch summaries', () => {
    const first = planFor(work) as CompactionPlan;
    const summary = compactionOf(first, 's').payload as EventPayloads['compaction'];
    const details = { read_files: ['b.ts'], changed_files: ['a.ts', 'c.ts'] };
    const branch: EventDraft = {
      event_type: 'branch_summary',
      payload: { from_id: 'e1', summary: 'tried', details: { read_files: ['d.ts'] } },
    };
    const again = planFor([
      ...work,
      { event_type: 'compaction', payload: { ...summary, details } },
      branch,
      answer('a3', {
        tokens: 60,
        calls: [{ id: 'd1', name: 'rye_file_system_edit', input: at('b.ts') }],
      }),
      result('d1'),
      answer('a4', { tokens: 120 }),
    ]);
    expect(again?.files).toEqual({ read: ['d.ts'], changed: ['a.ts', 'b.ts', 'c.ts'] });
  });
});

describe('tokens', () => {
  const counted: Usage = { ...NO_TOKENS, input_tokens: 700, output_tokens: 40 };

  it('are the count of the provider, and an estimate of later messages', () => {
    const planned = planFor([...LONG_TALK, answer('a5', { usage: counted }), user('u6', 25)]);
    expect(planned?.tokensBefore).toBe(740 + 25);
  });

  it('of an answer before the last compaction or edit do not count', () => {
    const first = planFor(LONG_TALK) as CompactionPlan;
    const stale = [
      ...LONG_TALK,
      answer('a5', { tokens: 60, usage: { ...counted, input_tokens: 90_000 } }),
      compactionOf(first, 's'),
      user('u6'),
      answer('a6', { tokens: 60 }),
      user('u7'),
      answer('a7', { tokens: 60 }),
    ];
    expect(planFor(stale)?.tokensBefore).toBeLessThan(1000);
  });
});

describe('sizes', () => {
  it('shrink with a small window', () => {
    const sizes = { contextWindow: 8000, reserveTokens: 16_384, keepRecentTokens: 20_000 };
    expect(fittingSizes(sizes)).toEqual({
      contextWindow: 8000,
      reserveTokens: 2000,
      keepRecentTokens: 3000,
    });
  });
});

const step = fc.oneof(
  fc.record({ kind: fc.constant('user' as const), tokens: fc.integer({ min: 5, max: 90 }) }),
  fc.record({
    kind: fc.constant('answer' as const),
    tokens: fc.integer({ min: 5, max: 90 }),
    calls: fc.integer({ min: 0, max: 3 }),
  }),
  fc.constant({ kind: 'compact' as const, tokens: 0 }),
);

describe('any conversation', () => {
  it('is compacted into one that keeps its pairs, its task and its newest part', () => {
    fc.assert(
      fc.property(fc.array(step, { minLength: 3, maxLength: 40 }), fc.nat(), (steps, pick) => {
        const drafts: EventDraft[] = [user('task')];
        for (const [at, one] of steps.entries()) {
          if (one.kind === 'user') drafts.push(user(`u${at}`, one.tokens));
          else if (one.kind === 'answer') {
            const calls = Array.from({ length: one.calls }, (_, n) => ({ id: `c${at}-${n}` }));
            drafts.push(answer(`a${at}`, { tokens: one.tokens, calls }));
            drafts.push(...calls.map(({ id }) => result(id)));
          } else {
            const planned = planFor(drafts);
            if (planned) drafts.push(compactionOf(planned, `summary ${at}`));
          }
        }
        const tree = treeOf(drafts);
        const best = planCompaction(tree, { sizes: SIZES });
        if (!best) return;
        expect(best.cutPoints).toContain(best.firstKeptEntryId);
        // the best cut, or any other that may be chosen
        const firstKept = pick % 3 === 0 ? undefined : best.cutPoints[pick % best.cutPoints.length];
        const planned = planCompaction(tree, { sizes: SIZES, firstKept });
        if (!planned) throw new Error(`no plan for ${firstKept}`);
        const before = foldContext(tree);
        const after = foldContext(treeOf([...drafts, compactionOf(planned, 'final')]));
        // every result follows its call
        const open = new Set<string>();
        for (const message of after.messages) {
          if (message.role === 'assistant')
            for (const call of toolCallsOf(message)) open.add(call.call_id);
          if (message.role === 'tool_result' && !open.delete(message.call_id)) open.add('no call');
        }
        expect(open.size).toBe(0);
        // the kept messages are a tail of the context
        const kept = after.messages.slice(
          after.messages.findIndex((m) => textOf(m.content).includes('final')) + 1,
        );
        expect(before.messages.slice(before.messages.length - kept.length)).toEqual(kept);
        expect(textOf(after.messages[0]?.content ?? [])).toMatch(/^task/);
        expect(after.messages.length).toBeLessThanOrEqual(before.messages.length + 1);
        const first = tree.byId.get(planned.firstKeptEntryId);
        expect(first && isKnown(first, 'message') && first.payload.message.role).not.toBe(
          'tool_result',
        );
        expect(pathTo(tree, tree.leafId).some(({ id }) => id === planned.firstKeptEntryId)).toBe(
          true,
        );
      }),
      { numRuns: 200, seed: 5 },
    );
  });
});
