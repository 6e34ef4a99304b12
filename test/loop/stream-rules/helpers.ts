import { createHash } from 'node:crypto';
import { AnswerWatch } from '../../../src/features/rules/stream/answer-watch.ts';
import { compileRules } from '../../../src/features/rules/stream/rules.ts';
import {
  type InjectionHistory,
  type MatchParts,
  RuleSession,
  type SlowMatcher,
} from '../../../src/features/rules/stream/session.ts';
import type { EventDraft } from '../../../src/kernel/core/events.ts';
import type { AssistantBlock } from '../../../src/kernel/core/message.ts';
import type { PlannedRule, RuleSettings } from '../../../src/kernel/core/plan.ts';
import type { Interrupt } from '../../../src/kernel/loop/ports.ts';
import type { ModelEvent } from '../../../src/kernel/providers/provider.ts';
import { compileGlob } from '../../../src/kernel/tools/glob-pattern.ts';

export const SETTINGS: RuleSettings = {
  enabled: true,
  context_mode: 'discard',
  interrupt_mode: 'always',
  repeat_mode: 'once',
  repeat_gap: 10,
  builtin_rules: true,
  disabled_rules: [],
  max_interrupts_per_run: 5,
  buffer_limit: 65_536,
};

export function ruleOf(
  name: string,
  condition: string,
  changes: Partial<PlannedRule> = {},
): PlannedRule {
  const body = changes.body ?? `Do not write ${name}.`;
  return {
    name,
    space: 'project',
    path: `.ai/rules/${name}.md`,
    sha256: createHash('sha256').update(`${condition} ${body}`).digest('hex'),
    conditions: [condition],
    scope: [],
    globs: [],
    engine: 're2',
    body,
    ...changes,
  };
}

const TOOL_IDS = new Map([
  ['rye_file_system_write', 'rye/file-system/write'],
  ['rye_file_system_edit', 'rye/file-system/edit'],
  ['rye_bash', 'rye/bash'],
]);
export const WRITE = 'rye_file_system_write';
export const EDIT = 'rye_file_system_edit';

export interface SessionChanges {
  readonly settings?: Partial<RuleSettings>;
  readonly history?: InjectionHistory;
  readonly slow?: SlowMatcher;
  readonly match?: MatchParts;
}

export function sessionOf(
  rules: readonly PlannedRule[],
  changes: SessionChanges = {},
): RuleSession {
  const settings = { ...SETTINGS, ...changes.settings };
  return new RuleSession({
    rules: compileRules(rules, settings, compileGlob),
    settings,
    projectPath: '/home/ada/project',
    toolIds: TOOL_IDS,
    history: changes.history,
    slow: changes.slow,
    match: changes.match,
  });
}

export function text(...pieces: readonly string[]): ModelEvent[] {
  return pieces.map((piece) => ({ type: 'text_delta', text: piece }));
}

export function thinking(...pieces: readonly string[]): ModelEvent[] {
  return pieces.map((piece) => ({ type: 'thinking_delta', text: piece }));
}

/** A call whose arguments come in pieces of so many characters. */
export function call(
  name: string,
  input: object | string,
  { id = 'call-1', size = 4 } = {},
): ModelEvent[] {
  const json = typeof input === 'string' ? input : JSON.stringify(input);
  const pieces: ModelEvent[] = [];
  for (let at = 0; at < json.length; at += size) {
    pieces.push({ type: 'toolcall_delta', call_id: id, json: json.slice(at, at + size) });
  }
  return [
    { type: 'toolcall_start', call_id: id, name },
    ...pieces,
    { type: 'toolcall_end', call_id: id },
  ];
}

export function finish(content: readonly AssistantBlock[] = []): ModelEvent {
  return { type: 'finish', reason: 'end', content };
}

/** A watch that keeps what it records. */
export class RecordedWatch extends AnswerWatch {
  readonly records: EventDraft[];

  constructor(session: RuleSession, turn: number) {
    const records: EventDraft[] = [];
    super(session, turn, (draft) => records.push(draft));
    this.records = records;
  }
}

export interface Heard {
  readonly interrupt: Interrupt | undefined;
  /** Number of events observed up to the interrupt. */
  readonly events: number;
  readonly watcher: RecordedWatch;
  /** Names of the rules that matched, in order. */
  readonly matched: readonly string[];
  readonly records: readonly EventDraft[];
}

/** Lets a watcher hear events until it interrupts. */
export function hear(watcher: RecordedWatch, events: readonly ModelEvent[]): Heard {
  let interrupt: Interrupt | undefined;
  let count = 0;
  for (const event of events) {
    count += 1;
    interrupt = watcher.observe(event);
    if (interrupt) break;
  }
  const records = [...watcher.records];
  const matched = records.flatMap((record) =>
    record.event_type === 'rule_matched' && typeof record.payload['rule'] === 'string'
      ? [record.payload['rule']]
      : [],
  );
  return { interrupt, events: count, watcher, matched, records };
}

/** Names of the rules that drafts tell. */
export function told(drafts: readonly EventDraft[]): readonly string[] {
  return drafts.flatMap((draft) =>
    draft.event_type === 'rule_injection' ? draft.payload.rules.map(({ name }) => name) : [],
  );
}

/** Text of the hidden messages among drafts. */
export function hiddenText(drafts: readonly EventDraft[]): string {
  return drafts
    .flatMap((draft) => (draft.event_type === 'custom_message' ? [draft.payload.content] : []))
    .join('\n');
}
