import { chmodSync, readFileSync, statSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  type Problem,
  type SignRequest,
  signItems,
  verifyItems,
} from '../../src/kernel/items/signing-fs.ts';
import { openItems, type VerifiedItems } from '../../src/kernel/items/verified-fs.ts';
import { STRICT_POLICY, type TrustPolicy } from '../../src/kernel/trust/policy.ts';
import { testKey } from '../trust/keys.ts';
import { compileGlob, makeSpaces, NOW, type SpaceFixture } from './space-fixture.ts';

let at: SpaceFixture;
let notices: string[];
const code = (value: string) => expect.objectContaining({ code: value });

const sign = (request: SignRequest, problems: readonly Problem[] = []) =>
  signItems(request, {
    spaces: at.spaces,
    compileGlob,
    signer: () => at.keyring.signer(),
    now: () => NOW,
    validate: () => problems,
  });
const open = (options: { allowUnsigned?: boolean; policy?: TrustPolicy } = {}): VerifiedItems =>
  openItems({
    ...at.context(),
    policy: STRICT_POLICY,
    allowUnsigned: false,
    onNotice: (notice) => notices.push(notice),
    ...options,
  });

beforeEach(async () => {
  at = makeSpaces();
  notices = [];
  await at.keyring.init();
});
afterEach(() => at.remove());

describe('signing items', () => {
  test('happens in place, keeps the mode, and the second time changes nothing', async () => {
    const path = at.write('project', 'tools/demo/run.sh', '#!/bin/sh\necho\n');
    chmodSync(path, 0o750);
    const request = { type: 'tool', pattern: 'demo/run' } as const;
    expect(await sign(request)).toEqual([
      { type: 'tool', id: 'demo/run', path, status: 'signed', problems: [] },
    ]);
    expect(statSync(path).mode & 0o777).toBe(0o750);
    const signed = readFileSync(path, 'utf8');
    expect(signed).toMatch(/^#!\/bin\/sh\n# rye:signed:\S+\necho\n$/);
    expect(await sign(request)).toMatchObject([{ status: 'unchanged' }]);
    expect(readFileSync(path, 'utf8')).toBe(signed);
    expect(open().load('tool', 'demo/run', 'execute').integrity).toBe('verified');
  });

  test('covers globs over the project and user spaces, and configuration', async () => {
    at.write('project', 'directives/demo/a.md', 'a');
    at.write('user', 'directives/demo/b.md', 'b');
    at.write('system', 'directives/demo/c.md', 'c');
    at.write('project', 'directives/other.md', 'o');
    at.write('project', 'config/agent/hooks.yaml', 'hooks: []\n');
    expect((await sign({ type: 'directive', pattern: 'demo/*' })).map(({ id }) => id)).toEqual([
      'demo/a',
      'demo/b',
    ]);
    expect(await sign({ type: 'directive', pattern: '**' })).toHaveLength(3);
    expect(await sign({ type: 'directive', pattern: 'd*/a' })).toHaveLength(1);
    expect(await sign({ type: 'directive', pattern: 'd*a' })).toHaveLength(1);
    await expect(sign({ type: 'directive', pattern: '*/*/a' })).rejects.toThrow(
      code('item_not_found'),
    );
    expect(await sign({ type: 'config', pattern: 'agent/hooks' })).toMatchObject([
      { status: 'signed' },
    ]);
  });

  test('warns when the file was signed as another item', async () => {
    const path = at.writeSigned('project', 'knowledge/note.yaml', 'servers: {}\n');
    at.write('project', 'config/mcp.yaml', readFileSync(path, 'utf8'));
    expect(await sign({ type: 'config', pattern: 'mcp' })).toMatchObject([
      {
        status: 'signed',
        problems: [
          {
            severity: 'warning',
            code: 'item_moved',
            message: 'the file was signed as knowledge note; the new signature is for config mcp',
          },
        ],
      },
    ]);
    expect(await sign({ type: 'config', pattern: 'mcp' })).toMatchObject([
      { status: 'unchanged', problems: [] },
    ]);
  });

  test('only tells with a dry run', async () => {
    const path = at.write('project', 'directives/a.md', 'a');
    expect(await sign({ type: 'directive', pattern: 'a', dryRun: true })).toMatchObject([
      { status: 'would_sign' },
    ]);
    expect(readFileSync(path, 'utf8')).toBe('a');
  });

  test('leaves a file with errors alone, not one with warnings', async () => {
    const path = at.write('project', 'directives/a.md', 'a');
    const problem = {
      severity: 'error',
      code: 'directive_malformed',
      message: 'm',
      path,
      line: 1,
      column: 1,
    } as const;
    const request = { type: 'directive', pattern: 'a' } as const;
    expect(await sign(request, [problem])).toMatchObject([
      { status: 'failed', problems: [problem] },
    ]);
    expect(readFileSync(path, 'utf8')).toBe('a');
    expect(await sign(request, [{ ...problem, severity: 'warning' }])).toMatchObject([
      { status: 'signed' },
    ]);
  });

  test('never touches the system space', async () => {
    const path = at.write('system', 'directives/rye/a.md', 'a');
    for (const pattern of ['rye/a', 'rye/*']) {
      await expect(sign({ type: 'directive', pattern })).rejects.toThrow(code('read_only_space'));
    }
    expect(readFileSync(path, 'utf8')).toBe('a');
  });

  test('refuses a pattern that matches nothing', async () => {
    at.write('project', 'directives/demo/a.md', 'a');
    await expect(sign({ type: 'directive', pattern: 'demo/b' })).rejects.toMatchObject({
      code: 'item_not_found',
      hint: 'Did you mean demo/a?',
    });
    await expect(sign({ type: 'directive', pattern: 'nope/*' })).rejects.toThrow(
      code('item_not_found'),
    );
  });

  test('continues after a file that cannot be signed', async () => {
    at.write('project', 'tools/a.js', '1');
    at.write('project', 'tools/a.py', '2');
    at.write('project', 'tools/b.sh', '3');
    at.write('project', 'tools/c.json', '[]');
    expect(await sign({ type: 'tool', pattern: '*' })).toMatchObject([
      { id: 'a', status: 'failed', problems: [{ code: 'duplicate_item' }] },
      { id: 'b', status: 'signed' },
      { id: 'c', status: 'failed', problems: [{ code: 'invalid_input' }] },
    ]);
  });

  test('needs a key, and does not write through a link out of the space', async () => {
    const outside = join(at.base, 'x.md');
    at.write('project', 'directives/a.md', 'a');
    symlinkSync(outside, join(at.projectPath, '.ai/directives/b.md'));
    await expect(sign({ type: 'directive', pattern: 'b' })).rejects.toThrow(code('path_denied'));
    await at.keyring.revoke(at.keyring.export().key_id);
    await expect(sign({ type: 'directive', pattern: '*' })).rejects.toThrow(code('key_revoked'));
  });
});

test('the exact name of a configuration file signs that of each space', async () => {
  at.write('user', 'config/agent/resilience.yaml', 'limits: {turns: 1}\n');
  at.write('project', 'config/agent/resilience.yaml', 'limits: {turns: 2}\n');
  const pattern = 'agent/resilience';
  const outcomes = await sign({ type: 'config', pattern });
  expect(outcomes.map(({ status }) => status)).toEqual(['signed', 'signed']);
  expect(new Set(outcomes.map(({ path }) => path)).size).toBe(2);
});

describe('verifying items', () => {
  test('reports each file of a pattern, in every space', async () => {
    at.writeSigned('project', 'directives/a.md', 'a');
    at.write('project', 'directives/b.md', 'b');
    at.writeSigned('user', 'directives/c.md', 'c', testKey(9));
    at.write('system', 'directives/d.md', 'd');
    const outcomes = await verifyItems(
      { type: 'directive', pattern: '*' },
      { ...at.context(), compileGlob },
    );
    expect(outcomes.map(({ id, ok, error, key_id }) => [id, ok, error?.code, key_id])).toEqual([
      ['a', true, undefined, at.keyring.signer().keyId],
      ['b', false, 'unsigned', undefined],
      ['c', false, 'key_untrusted', testKey(9).keyId],
      ['d', true, undefined, undefined],
    ]);
    expect(outcomes[0]).toMatchObject({ signature_version: 2, signed_at: '2026-01-02T03:04:05Z' });
    expect(outcomes[1]?.error?.hint).toContain('rye sign directive b');
  });

  test('reports a file that cannot be read instead of failing', async () => {
    at.write('project', 'rules/a.md', Buffer.from([0xff]));
    expect(
      await verifyItems({ type: 'rule', pattern: '*' }, { ...at.context(), compileGlob }),
    ).toMatchObject([{ ok: false, error: { code: 'rule_malformed' } }]);
  });
});

describe('loading an item', () => {
  test('gives the bytes that were verified', () => {
    at.writeSigned('project', 'directives/a.md', 'Body\n');
    const item = open().load('directive', 'a', 'execute');
    expect(item).toMatchObject({
      integrity: 'verified',
      space: 'project',
      verdict: { ok: true, by: 'key' },
    });
    expect(item.sha256).toMatch(/^[0-9a-f]{64}$/);
    expect(Buffer.from(item.bytes).toString()).toBe(item.text);
  });

  test.each([
    ['unsigned', (text: string) => text.slice(text.indexOf('\n') + 1)],
    ['content_modified', (text: string) => `${text}x`],
    ['signature_invalid', (text: string) => text.replace(/:[\w-]{86}:/, `:${'A'.repeat(86)}:`)],
  ])('refuses to run one that is %s', (expected, change) => {
    const path = at.writeSigned('project', 'directives/demo/a.md', 'Body\n');
    at.write('project', 'directives/demo/a.md', change(readFileSync(path, 'utf8')));
    const items = open();
    const run = () => items.load('directive', 'demo/a', 'execute');
    expect(run).toThrow(code(expected));
    expect(run).toThrow(
      expect.objectContaining({
        exitCode: 3,
        hint: expect.stringContaining('rye sign directive demo/a'),
      }),
    );
    expect(run).toThrow(path);
  });

  test('lets a developer run an unsigned project item with integrity unverified', () => {
    at.write('project', 'directives/a.md', 'a');
    at.write('user', 'directives/b.md', 'b');
    expect(open({ allowUnsigned: true }).load('directive', 'a', 'execute').integrity).toBe(
      'unverified',
    );
    expect(() => open({ allowUnsigned: true }).load('directive', 'b', 'execute')).toThrow(
      code('unsigned'),
    );
  });

  test('never falls through to the next space', () => {
    at.write('project', 'directives/a.md', 'unsigned');
    at.writeSigned('user', 'directives/a.md', 'signed');
    expect(() => open().load('directive', 'a', 'execute')).toThrow(code('unsigned'));
  });

  test('warns once for a fetch, and still gives the item', () => {
    at.write('project', 'knowledge/a.md', 'a');
    const items = open();
    expect(items.load('knowledge', 'a', 'fetch').integrity).toBe('unverified');
    items.load('knowledge', 'a', 'fetch');
    expect(notices).toEqual([
      expect.stringMatching(/a\.md: knowledge a is not signed \[unsigned\]$/),
    ]);
  });

  test('takes system items by the manifest alone: no edit, no addition, no signature helps', () => {
    const path = at.write('system', 'directives/a.md', 'a');
    const context = at.context();
    const items = openItems({
      ...context,
      policy: STRICT_POLICY,
      allowUnsigned: true,
      onNotice: () => {},
    });
    expect(items.load('directive', 'a', 'execute').verdict).toEqual({ ok: true, by: 'manifest' });
    at.write('system', 'directives/a.md', 'b');
    at.write('system', 'directives/new.md', 'new');
    expect(() => items.load('directive', 'a', 'execute')).toThrow(code('system_item_modified'));
    expect(() => items.load('directive', 'a', 'fetch')).toThrow(code('system_item_modified'));
    expect(() => items.load('directive', 'new', 'execute')).toThrow(code('system_item_modified'));
    expect(path).toContain('system');
  });

  test('answers an unknown id with near ones', () => {
    at.write('project', 'directives/hello.md', 'a');
    expect(() => open().load('directive', 'helo', 'execute')).toThrow(
      expect.objectContaining({ code: 'item_not_found', hint: 'Did you mean hello?' }),
    );
  });
});
