import { readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { exportHtml } from '../../src/features/html/page.ts';
import type { LogEvent } from '../../src/kernel/core/events.ts';
import { exportMarkdown } from '../../src/kernel/export/knowledge.ts';
import { exportPathLog } from '../../src/kernel/export/path-log.ts';
import { type Redacted, Redaction, withoutSecretShapes } from '../../src/kernel/export/redact.ts';
import { decodeLine } from '../../src/kernel/log/codec.ts';
import { place } from '../log/support.ts';
import { STORY } from './html/story.ts';
import { sourceOf } from './support.ts';

const KEY = `sk-ant-${'a1B2'.repeat(8)}`;

const SECRETS: readonly (readonly [string, string])[] = [
  [`use ${KEY} please`, 'use [redacted] please'],
  ['ghp_0123456789abcdefghijABCDEFGHIJ and more', '[redacted] and more'],
  ['id AKIAIOSFODNN7EXAMPLE.', 'id [redacted].'],
  ['-----BEGIN PRIVATE KEY-----\nMIIE\nvQ==\n-----END PRIVATE KEY----- end', '[redacted] end'],
  ['-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blb cut', '[redacted]'],
  ['eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl', '[redacted]'],
  ['Authorization: Bearer abcdefgh12345678', 'Authorization: Bearer [redacted]'],
  ['postgres://ada:hunter22@db/x', 'postgres://ada:[redacted]@db/x'],
  ['export DB_PASSWORD=correct-horse', 'export DB_PASSWORD=[redacted]'],
  ['{"api_key": "0123456789"}', '{"api_key": "[redacted]"}'],
  ['password=hunter2', 'password=[redacted]'],
  ['"password": "p@ss, w0rd!" and on', '"password": "[redacted]" and on'],
  ["passwd: 'it; is, short'", "passwd: '[redacted]'"],
  ['PGPASSWORD=abc;def1234 psql', 'PGPASSWORD=[redacted] psql'],
  ['postgres://u:p@ss@host/db', 'postgres://u:[redacted]@host/db'],
  ['https://0123456789abcdef0123@git.example/x', 'https://[redacted]@git.example/x'],
  ['https://hooks.slack.com/services/T0/B0/abcDEF', 'https://hooks.slack.com/services/[redacted]'],
  ['AGE-SECRET-KEY-1QQPZRY9X8GF2TVDW0S3JN54', '[redacted]'],
  [
    'DefaultEndpointsProtocol=https;AccountKey=abc+/def0==',
    'DefaultEndpointsProtocol=https;AccountKey=[redacted]',
  ],
  ['Authorization: Basic dXNlcjpwYXNz', 'Authorization: Basic [redacted]'],
  [String.raw`{\"token\":\"0123456789\"}`, String.raw`{\"token\":\"[redacted]\"}`],
  ['https://tok3n0fgithub@github.com/x', 'https://[redacted]@github.com/x'],
  ['mysql --password hunter2hunter2 db', 'mysql --password [redacted] db'],
  ['login --api-key "abc123" now', 'login --api-key "[redacted]" now'],
  ['curl -u ada:hunter2 https://x', 'curl -u ada:[redacted] https://x'],
  ['Set-Cookie: session=abcdef0123456789; Path=/', 'Set-Cookie: [redacted]'],
  ['authorization: bearer abcdef1234567890', 'authorization: bearer [redacted]'],
  ['{"password": ["hunter2", "hunter3"]}', '{"password": ["[redacted]"]}'],
  ['passphrase: correct-horse', 'passphrase: [redacted]'],
];

/** Names of members, and whether their values go. */
const NAMES: readonly (readonly [string, boolean])[] = [
  ['api_key', true],
  ['dbPassword', true],
  ['passwords', true],
  ['credentials', true],
  ['userPass', true],
  ['pass', true],
  ['input_tokens_count', false],
  ['bypass', false],
  ['key', false],
  ['token_count', false],
];

const NOTHING: Redacted = { directive: 'demo/count', inputs: [], hidden: [], isPlayed: false };

function redacted(events: readonly LogEvent[], told: Partial<Redacted> = {}) {
  const redaction = new Redaction({ ...NOTHING, ...told });
  const clean = events.map((event) => redaction.event(event));
  return { clean, source: sourceOf(clean, { redactions: redaction.count }) };
}

const TAIL = 'aB3dE6gH9jK2mN5pQ8sT1vW4';

/** A text with a key of each provider that rye ships; some have no form that tells them. */
const KEY_TEXTS: Readonly<Record<string, string>> = {
  anthropic: `sk-ant-api03-${TAIL}`,
  azure: `api-key: ${TAIL}`,
  bedrock: `AWS_SECRET_ACCESS_KEY=${TAIL}`,
  'bedrock-open': `ABSK${TAIL}`,
  gemini: `AIza${TAIL}${TAIL}`,
  groq: `gsk_${TAIL}`,
  lmstudio: `LMSTUDIO_API_KEY=${TAIL}`,
  mistral: `MISTRAL_API_KEY="${TAIL}"`,
  ollama: `OLLAMA_API_KEY=${TAIL}`,
  openai: `sk-proj-${TAIL}`,
  openrouter: `sk-or-v1-${TAIL}`,
  vllm: `Bearer ${TAIL}`,
};

describe('what looks like a secret', () => {
  it('includes a key of every provider that is shipped', () => {
    const shipped = readdirSync('.ai/config/agent/providers').map((name) => name.split('.')[0]);
    expect(new Set(Object.keys(KEY_TEXTS))).toEqual(new Set(shipped));
    for (const text of [...Object.values(KEY_TEXTS), `xai-${TAIL}`]) {
      const { text: clean, found } = withoutSecretShapes(`a ${text} b`);
      expect({ clean, found }).toEqual({
        clean: expect.stringMatching(/^a .*\[redacted\]"? b$/),
        found: 1,
      });
      expect(clean).not.toContain('K2mN5');
    }
  });

  it.each(SECRETS)('%j', (text, expected) => {
    expect(withoutSecretShapes(text)).toEqual({ text: expected, found: 1 });
  });

  it.each([
    'a task-force of sk- and pk_ things',
    'max_tokens: 100000, token count 7',
    'Basic understanding of the Bearer of news',
    'https://example.com/a:b@c and mail ada@example.com',
    'ssh://git@github.com/x --password-file secrets.txt -u ada',
  ])('is not %j', (text) => {
    expect(withoutSecretShapes(text)).toEqual({ text, found: 0 });
  });

  it.each([
    ['-----BEGIN PRIVATE KEY-----', 'x'],
    ['://a:', 'b'],
    ['password=', '"'],
    ['eyJaaaaaaaa.', 'a'],
    ['Bearer ', 'a'],
    ['sk-', '-'],
  ])('is looked for in time that grows with the text: %j', (start, rest) => {
    const text = `${start.repeat(20_000)}${rest.repeat(200_000)}`;
    const begin = performance.now();
    withoutSecretShapes(text);
    expect(performance.now() - begin).toBeLessThan(20_000);
  });
});

it('takes secrets out of the names of members too', () => {
  const redaction = new Redaction(NOTHING);
  expect(redaction.scrub({ outputs: { [KEY]: [KEY, 1, null] } })).toEqual({
    outputs: { '[redacted]': ['[redacted]', 1, null] },
  });
  expect(redaction.count).toBe(2);
});

it.each([
  ['as it is', 'the "first"\nand the second word'],
  ['with other spaces around it', '  the "first"\nand the second word \n'],
  ['within JSON', JSON.stringify('the "first"\nand the second word').slice(1, -1)],
  ['one line of it', 'and the second word'],
])('takes out an input that a text repeats: %s', (_, repeated) => {
  const value = ' the "first"\nand the second word\n';
  const redaction = new Redaction({ ...NOTHING, inputs: [{ value }] });
  expect(redaction.prose(`You gave <${repeated}>.`)).not.toMatch(/first|second/);
  expect(redaction.count).toBe(1);
});

it('takes out one line of an input within JSON', () => {
  const redaction = new Redaction({
    ...NOTHING,
    inputs: [{ value: 'a line with a "quoted" word\nshort' }],
  });
  const text = JSON.stringify({ said: 'a line with a "quoted" word' });
  expect(redaction.prose(text)).toBe('{"said":"[redacted]"}');
});

it('takes out the values of members whose names announce a secret', () => {
  const redaction = new Redaction(NOTHING);
  for (const [name, isSecret] of NAMES) {
    const value = { [name]: 'plain', deep: { [name]: ['plain', { inner: 7 }, true] } };
    const clean = isSecret
      ? { [name]: '[redacted]', deep: { [name]: ['[redacted]', { inner: '[redacted]' }, true] } }
      : value;
    expect(redaction.prose(value)).toEqual(clean);
    expect(redaction.outcome({ outputs: value }).outputs).toEqual(clean);
  }
  expect(redaction.scrub({ tokens: 4096, output_tokens: 12 })).toEqual({
    tokens: 4096,
    output_tokens: 12,
  });
});

describe('a redacted export', () => {
  const drafts = STORY.map((draft) =>
    draft.event_type === 'title' ? { ...draft, payload: { title: `March ${KEY}` } } : draft,
  );
  const { source } = redacted(place(drafts));
  const formats = { html: exportHtml, md: exportMarkdown, jsonl: exportPathLog };

  it.each(Object.entries(formats))('as %s shows the conversation and nothing else', (_, write) => {
    const text = [...write(source)].join('');
    for (const kept of [
      'Why does the total',
      'rye_bash',
      'The auditor counted',
      'stops at the comma',
    ]) {
      expect(text).toContain(kept);
    }
    for (const gone of [
      'head -3 ledger.csv',
      '214 ledger.csv',
      'ENOENT',
      'I should look at',
      'opaque-signature',
      'SECRET-FROM-PEOPLE',
      KEY,
    ]) {
      expect(text).not.toContain(gone);
    }
  });

  it('is still a readable log, and the page states the number of redactions', () => {
    const lines = [...exportPathLog(source)].join('').trimEnd().split('\n').slice(1);
    expect(lines.flatMap(decodeLine).filter((piece) => 'problem' in piece)).toEqual([]);
    expect(source.redactions).toBeGreaterThan(9);
    expect([...exportHtml(source)].join('')).toContain(`Redacted: ${source.redactions} values`);
  });

  it('loses images, data of results, names that are data, and types that are not known', () => {
    const [event] = place([
      {
        event_type: 'message',
        payload: {
          message: {
            role: 'tool_result',
            call_id: 'c',
            name: 'n',
            outcome: 'ok',
            content: [{ type: 'image', media_type: 'image/png', data: 'AAAA' }],
            data: { password: 'x' },
          },
          ...({ pi_line: 'AAAA' } as object),
        },
      },
    ]);
    const unknown = { ...event, event_type: 'later', payload: { 'a name': 'x', b: 'y' } };
    const { clean } = redacted([event, unknown] as LogEvent[]);
    expect(clean.map(({ payload }) => payload)).toEqual([
      {
        message: {
          role: 'tool_result',
          call_id: 'c',
          name: 'n',
          outcome: 'ok',
          content: [{ type: 'text', text: '[redacted] 4 characters' }],
        },
      },
      { member_1: '[redacted]', b: '[redacted]' },
    ]);
  });
});

/** A string in every member that may have one, each a word that names its place. */
const CANARIES: readonly (readonly [string, object])[] = [
  [
    'message',
    { message: { role: 'user', content: [{ type: 'text', text: 'C-user' }] }, label: 'C-label' },
  ],
  [
    'message',
    {
      message: {
        role: 'assistant',
        stop_reason: 'tool_use',
        content: [
          { type: 'text', text: 'C-answer' },
          { type: 'thinking', text: 'C-thinking', signature: 'C-signature' },
          {
            type: 'tool_call',
            call_id: 'c1',
            name: 'rye_bash',
            input: { command: 'C-input' },
            malformed: 'C-malformed',
          },
        ],
      },
    },
  ],
  [
    'message',
    {
      message: {
        role: 'tool_result',
        call_id: 'c1',
        name: 'rye_bash',
        outcome: 'ok',
        content: [{ type: 'text', text: 'C-result' }],
        data: { value: 'C-data' },
      },
      pi_line: 'C-line',
    },
  ],
  ['system_prompt', { text: 'C-prompt', tools: [] }],
  [
    'context_injected',
    { position: 'before', blocks: [{ id: 'b', source: 's', content: 'C-context' }] },
  ],
  [
    'compaction',
    {
      summary: 'C-compaction',
      first_kept_entry_id: null,
      tokens_before: 1,
      details: { d: 'C-compaction-details' },
    },
  ],
  ['branch_summary', { from_id: 'e1', summary: 'C-branch', details: { d: 'C-branch-details' } }],
  ['custom', { custom_type: 'state', data: { value: 'C-custom' } }],
  [
    'custom_message',
    { custom_type: 'x', content: 'C-shown', display: true, details: { d: 'C-shown-details' } },
  ],
  ['custom_message', { custom_type: 'x', content: 'C-hidden', display: false }],
  [
    'custom_message',
    {
      custom_type: 'delivery',
      content: 'C-child-result',
      display: true,
      details: { kind: 'child_result' },
    },
  ],
  [
    'custom_message',
    { custom_type: 'delivery', content: 'C-delivered', display: true, details: { kind: 'steer' } },
  ],
  ['title', { title: 'C-title' }],
  ['label', { target_id: 'e1', label: 'C-late-label' }],
  ['context_edit', { target_id: 'e3', action: 'replace', content: 'C-shortened-result' }],
  ['context_edit', { target_id: 'e1', action: 'replace', content: 'C-edited-message' }],
  ['context_edit', { target_id: 'gone', action: 'replace', content: 'C-edited-unknown' }],
  [
    'thread_started',
    {
      directive: 'd',
      model: 'm',
      provider: 'p',
      limits: {},
      integrity: 'verified',
      inputs: { who: 'C-started' },
    },
  ],
  ['token_delta', { text: 'C-token' }],
  ['thinking_delta', { text: 'C-think-delta' }],
  ['toolcall_delta', { call_id: 'c1', json: 'C-json' }],
  [
    'tool_call_start',
    { call_id: 'c1', tool: 'rye/bash', name: 'rye_bash', input: { command: 'C-start' }, turn: 1 },
  ],
  ['tool_call_progress', { call_id: 'c1', text: 'C-progress' }],
  [
    'tool_settled',
    {
      call_id: 'c1',
      tool: 'rye/bash',
      outcome: 'ok',
      duration_ms: 1,
      output_bytes: 1,
      reason: 'C-reason',
    },
  ],
  [
    'hook_fired',
    {
      id: 'h',
      layer: 1,
      event: 'after_tool',
      matched: true,
      duration_ms: 1,
      outcome: 'error',
      error: 'C-hook',
    },
  ],
  ['error_classified', { category: 'rejected', retryable: false, message: 'C-classified' }],
  ['note', { text: 'a handler failed: C-note', details: { d: 'C-note-details' } }],
  ['child_thread_started', { child_thread_id: 'x', directive: 'd', label: 'C-child-label' }],
  ['file_change', { call_id: 'c1', path: 'C-path', before: null, after: null }],
  [
    'approval_requested',
    { tool: 'rye/bash', input: { command: 'C-approval' }, question: 'C-question' },
  ],
  ['mcp_server_started', { server: 's', duration_ms: 1, error: 'C-mcp' }],
  ['later', { anything: 'C-unknown' }],
  [
    'thread_finished',
    {
      status: 'error',
      result: 'C-outcome',
      outputs: { o: 'C-output' },
      error: {
        code: 'tool_failed',
        message: 'C-error',
        hint: 'C-hint',
        details: { d: 'C-error-details' },
      },
      cost: {},
    },
  ],
];

const STAYS =
  'C-user C-label C-answer C-prompt C-context C-compaction C-branch C-shown C-delivered C-title C-late-label C-edited-message C-outcome C-output';

const drafted = (type: string, payload: object) =>
  ({ event_type: type, payload }) as unknown as (typeof STORY)[number];

describe('every member of every event', () => {
  const events = place(CANARIES.map(([type, payload]) => drafted(type, payload)));

  it('is removed unless it is a message, a summary, a name or the outcome', () => {
    const { clean } = redacted(events);
    const left = JSON.stringify(clean).match(/C-[a-z-]+/g) ?? [];
    expect(new Set(left)).toEqual(new Set(STAYS.split(' ')));
  });

  it('of a thread that played steps loses the outcome too, which is that of a tool', () => {
    const { clean } = redacted(events, { isPlayed: true });
    expect(JSON.stringify(clean)).not.toMatch(/C-out/);
  });

  it('loses the values of inputs and keys where a text repeats them', () => {
    const filled = JSON.parse(
      JSON.stringify(events).replaceAll(
        /C-[a-z-]+/g,
        'of PATIENT (4711): a \\"b\\" PATIENTS thekey',
      ),
    ) as LogEvent[];
    const inputs = [{ who: 'PATIENT', more: [{ n: 4711 }, 'a "b"'] }];
    const text = JSON.stringify(redacted(filled, { inputs, hidden: ['thekey'] }).clean);
    expect(text).not.toMatch(/PATIENT\b|4711|thekey|a \\/);
    expect(text).toContain('of [redacted] ([redacted]): [redacted] PATIENTS [redacted]');
  });

  it('keeps the message that a person begins a chat with', () => {
    const told = { directive: 'rye/core/chat', inputs: [{ message: 'C-user' }] };
    expect(JSON.stringify(redacted(events, told).clean)).toContain('C-user');
  });
});

it('keeps of an error its code, the step and what a limit reports', () => {
  const redaction = new Redaction(NOTHING);
  const error = {
    code: 'tool_failed',
    message: 'step "one" (/home/ada/x.md:10): rye_bash failed: X',
  } as const;
  expect(redaction.outcome({ error })).toEqual({
    error: { code: 'tool_failed', message: 'step "one": [redacted]' },
  });
  const limit = { code: 'limit_turns', message: 'Turn limit reached (2 of 2)', hint: 'x' } as const;
  expect(redaction.outcome({ error: limit })).toEqual({
    error: { code: 'limit_turns', message: 'Turn limit reached (2 of 2)' },
  });
});
