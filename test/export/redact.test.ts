import { describe, expect, it } from 'vitest';
import type { LogEvent } from '../../src/core/events.ts';
import { exportHtml } from '../../src/export/html/page.ts';
import { exportMarkdown } from '../../src/export/knowledge.ts';
import { exportPathLog } from '../../src/export/path-log.ts';
import { Redaction, withoutSecretShapes } from '../../src/export/redact.ts';
import { decodeLine } from '../../src/log/codec.ts';
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
  [String.raw`{\"token\":\"0123456789\"}`, String.raw`{\"token\":\"[redacted]\"}`],
];

function redacted(events: readonly LogEvent[]) {
  const redaction = new Redaction();
  const clean = events.map((event) => redaction.event(event));
  return { clean, source: sourceOf(clean, { redactions: redaction.count }) };
}

describe('what looks like a secret', () => {
  it.each(SECRETS)('%j', (text, expected) => {
    expect(withoutSecretShapes(text)).toEqual({ text: expected, found: 1 });
  });

  it.each([
    'a task-force of sk- and pk_ things',
    'max_tokens: 100000, token count 7',
    'Basic understanding of the Bearer of news',
    'https://example.com/a:b@c and mail ada@example.com',
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
  const redaction = new Redaction();
  expect(redaction.scrub({ outputs: { [KEY]: [KEY, 1, null] } })).toEqual({
    outputs: { '[redacted]': ['[redacted]', 1, null] },
  });
  expect(redaction.count).toBe(2);
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
