import type { EventDraft } from '../../../src/kernel/core/events.ts';
import type { AssistantBlock, ToolOutcome } from '../../../src/kernel/core/message.ts';
import { NO_COST, NO_USAGE } from '../../../src/kernel/core/usage.ts';

/** A message of a person. */
export function asks(text: string): EventDraft {
  const message = { role: 'user', content: [{ type: 'text', text }] } as const;
  return { event_type: 'message', payload: { message } };
}

/** An answer. */
export function answers(turn: number, ...content: readonly AssistantBlock[]): EventDraft {
  const stop_reason = content.some(({ type }) => type === 'tool_call') ? 'tool_calls' : 'end';
  const usage = {
    ...NO_USAGE,
    input_tokens: 1200 * turn,
    output_tokens: 80,
    cache_read_tokens: 900,
  };
  const message = { role: 'assistant', content, provider: 'anthropic', model: 'haiku' } as const;
  return { event_type: 'message', payload: { turn, message: { ...message, stop_reason, usage } } };
}

export function reply(text: string): AssistantBlock {
  return { type: 'text', text };
}

export function thinks(text: string): AssistantBlock {
  return { type: 'thinking', text, signature: 'opaque-signature' };
}

export function calls(
  call_id: string,
  name: string,
  input: Record<string, string>,
): AssistantBlock {
  return { type: 'tool_call', call_id, name, input };
}

/** A tool's result, after some time. */
export function gives(
  call_id: string,
  name: string,
  text: string,
  outcome: ToolOutcome = 'ok',
): readonly EventDraft[] {
  const message = { role: 'tool_result', call_id, name, outcome } as const;
  const facts = { call_id, tool: name.replaceAll('_', '/'), outcome, duration_ms: 120 };
  return [
    { event_type: 'tool_settled', payload: { ...facts, output_bytes: text.length } },
    {
      event_type: 'message',
      payload: { message: { ...message, content: [{ type: 'text', text }] } },
    },
  ];
}

function costs(turn: number, spend: number): EventDraft {
  const usage = {
    ...NO_USAGE,
    input_tokens: 1200 * turn,
    output_tokens: 80,
    cache_read_tokens: 900,
  };
  return {
    event_type: 'cost',
    payload: { turn, usage, total: { ...NO_COST, turns: turn, spend } },
  };
}

const CODE = `The total is wrong because \`parseInt\` stops at the comma. A fix:

\`\`\`ts
// Amounts come as "1,024.50".
export function amountOf(text: string): number {
  const value = Number(text.replaceAll(',', ''));
  if (Number.isNaN(value)) throw new RangeError(\`no amount: \${text}\`);
  return value;
}
\`\`\`

| invoice | was | is |
| --- | ---: | ---: |
| 2041 | 1 | 1,024.50 |
| 2042 | 17 | 17.00 |

See [the report](https://example.com/report) for the rest.`;

/**
 * A thread with everything that a page has to show. Ids are e1, e2, …; e4 is an abandoned branch, e17 the leaf when the
 * labels and the title are in.
 */
export const STORY: readonly EventDraft[] = [
  {
    event_type: 'system_prompt',
    payload: { text: 'You find **mistakes** in ledgers.', tools: [{ name: 'rye_bash' }] },
  },
  asks('Why does the total of March not match? Look into `ledger.csv` and fix the importer.'),
  { event_type: 'turn_started', payload: { turn: 1 } },
  answers(1, reply('I would rather guess than look.')),
  costs(1, 0.0021),
  { event_type: 'leaf', payload: { target_id: 'e2' } },
  {
    event_type: 'branch_summary',
    payload: { from_id: 'e3', summary: 'A guess was made and thrown away.' },
  },
  answers(
    2,
    thinks('The importer parses amounts. I should look at the *file* first, then at the code.'),
    reply('I look at the file first.'),
    calls('c1', 'rye_bash', { command: 'head -3 ledger.csv && wc -l ledger.csv' }),
    calls('c2', 'rye_file_system_read', { path: 'src/import.ts' }),
  ),
  ...gives('c1', 'rye_bash', 'invoice,amount\n2041,"1,024.50"\n2042,17.00\n214 ledger.csv'),
  ...gives('c2', 'rye_file_system_read', 'ENOENT: no such file: src/import.ts', 'error'),
  costs(2, 0.0094),
  {
    event_type: 'rule_matched',
    payload: { rule: 'no-parse-int', stream: 'text', interrupted: true },
  },
  {
    event_type: 'rule_injection',
    payload: { rules: [{ name: 'no-parse-int', sha256: 'x' }], turn: 3 },
  },
  {
    event_type: 'custom_message',
    payload: { custom_type: 'rule_injection', content: 'SECRET-FROM-PEOPLE', display: false },
  },
  {
    event_type: 'error_classified',
    payload: { category: 'rate_limit', retryable: true, message: 'slow down', status: 429 },
  },
  { event_type: 'retry_scheduled', payload: { attempt: 1, delay_ms: 800, policy: 'exponential' } },
  {
    event_type: 'child_thread_started',
    payload: { child_thread_id: 'audit/count-7', directive: 'audit/count' },
  },
  {
    event_type: 'child_thread_finished',
    payload: { child_thread_id: 'audit/count-7', status: 'completed', spend: 0.0012 },
  },
  {
    event_type: 'custom_message',
    payload: {
      custom_type: 'delivery',
      content: 'The auditor counted **213** rows.',
      display: true,
    },
  },
  answers(
    3,
    reply(CODE),
    calls('c3', 'rye_file_system_write', {
      path: 'src/import.ts',
      content: 'export const a = 1;\nexport const b = "two";\n',
    }),
  ),
  ...gives('c3', 'rye_file_system_write', 'wrote 44 bytes'),
  costs(3, 0.0172),
  {
    event_type: 'compaction',
    payload: {
      summary: '## Goal\nFind the mistake.',
      first_kept_entry_id: 'e12',
      tokens_before: 18_400,
    },
  },
  asks('Thank you. Is there anything else?'),
  answers(4, reply('No. March is 48,112.75 now, which is what the bank says.')),
  costs(4, 0.0203),
  { event_type: 'label', payload: { target_id: 'e12', label: 'the fix' } },
  { event_type: 'title', payload: { title: 'The total of March' } },
  {
    event_type: 'checkpoint',
    payload: {
      from: 0,
      to: 9000,
      sha256: 'a',
      prev: 'b',
      seq: 40,
      timestamp: 't',
      key_id: '9f3ac2d177e0b415',
      signature: 's',
    },
  },
];
