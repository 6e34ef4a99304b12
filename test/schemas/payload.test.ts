import * as fc from 'fast-check';
import { expect, expectTypeOf, it } from 'vitest';
import type { z } from 'zod';
import type { EntryType, EventPayloads } from '../../src/kernel/core/events.ts';
import { isRecord, type JsonObject } from '../../src/kernel/core/json.ts';
import { payloadProblem } from '../../src/kernel/log/codec.ts';
import { payloads } from '../../src/kernel/schemas/events.ts';
import { runs } from '../helpers/runs.ts';
import { payloadProblem as problemByHand } from './by-hand/payload.ts';
import { mutated } from './old-and-new.ts';

const message = (role: string, ...content: readonly JsonObject[]): JsonObject => ({
  message: { role, content, call_id: 'c' },
});
const DOCUMENTS: Readonly<Record<string, readonly JsonObject[]>> = {
  message: [
    message('user', { type: 'text', text: 'a' }, { type: 'image', data: 'b', media_type: 'c' }),
    message('assistant', { type: 'thinking', text: 'a' }),
    message('assistant', { type: 'tool_call', call_id: 'c', name: 'n', input: { a: 1 } }),
    message('tool_result', { type: 'text', text: 'a' }),
  ],
  system_prompt: [{ text: 'a', tools: [{}] }],
  model_change: [{ provider: 'a', model: 'b' }],
  thinking_change: [{ level: 'low' }],
  compaction: [
    { summary: 'a', first_kept_entry_id: 'b', tokens_before: 1, protected_entry_ids: ['c'] },
    { summary: 'a', first_kept_entry_id: null, tokens_before: 1, details: {} },
  ],
  branch_summary: [{ from_id: 'a', summary: 'b' }],
  custom: [{ custom_type: 'a', data: {} }],
  custom_message: [{ custom_type: 'a', content: 'b', display: true }],
  label: [
    { target_id: 'a', label: null },
    { target_id: 'a', label: 'b' },
  ],
  title: [{ title: 'a' }],
  rule_injection: [{ rules: [{ name: 'a', sha256: 'b' }], turn: 1 }],
  context_edit: [
    { target_id: 'a', action: 'omit' },
    { target_id: 'a', action: 'replace', content: 'b' },
  ],
  leaf: [{ target_id: null }, { target_id: 'a' }],
  note: [{ text: 'a' }],
};
const payload = fc.constantFrom(...Object.keys(DOCUMENTS)).chain((type) =>
  mutated(DOCUMENTS[type] ?? [])
    .filter(isRecord)
    .map((value): [string, Record<string, unknown>] => [type, value]),
);

it('a payload is refused with the same reason as by hand', () => {
  fc.assert(
    fc.property(payload, ([type, value]) => {
      expect(payloadProblem(type, value)).toBe(problemByHand(type, value));
    }),
    runs(1000),
  );
});

it('the check by hand of messages refuses what their declaration refuses', () => {
  const declared = payloads.shape.message;
  fc.assert(
    fc.property(mutated(DOCUMENTS['message'] ?? []).filter(isRecord), (value) => {
      expect(payloadProblem('message', value) === undefined).toBe(
        declared.safeParse(value).success,
      );
    }),
    runs(1000),
  );
});

it('every checked type has a document here', () => {
  expect(Object.keys(DOCUMENTS)).toEqual(expect.arrayContaining(Object.keys(payloads.shape)));
});

it('every payload that is written has what its declaration asks for', () => {
  type Declared = z.infer<typeof payloads>;
  type DeepMutable<T> = T extends object ? { -readonly [K in keyof T]: DeepMutable<T[K]> } : T;
  // `action` and `content` of a context edit depend on each other
  type Compared = Exclude<keyof Declared, 'context_edit' | 'message'>;

  expectTypeOf<keyof Declared>().toEqualTypeOf<Exclude<EntryType, 'context_injected'>>();
  expectTypeOf<DeepMutable<Pick<EventPayloads, Compared>>>().toExtend<Pick<Declared, Compared>>();
  expectTypeOf<EventPayloads['context_edit']['action']>().toEqualTypeOf<
    Declared['context_edit']['action']
  >();
  expectTypeOf<EventPayloads['message']['message']['role']>().toEqualTypeOf<
    Declared['message']['message']['role']
  >();
});
