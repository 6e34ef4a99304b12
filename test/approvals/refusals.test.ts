import { readFileSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { describe, expect, it, vi } from 'vitest';
import type { SignedDecision } from '../../src/kernel/core/approval.ts';
import { signDecision } from '../../src/kernel/trust/approval.ts';
import type { SigningKey } from '../../src/kernel/trust/keys.ts';
import { directive, shellTool } from '../attacks/lab.ts';
import { calls, type House, house, marks, payloads, toolUse } from './house.ts';

/** A decision about a request, with a key, and what is different in it. */
async function decision(
  here: House,
  id: string,
  key: SigningKey,
  change: Partial<SignedDecision['decision']> = {},
): Promise<SignedDecision> {
  const { request, request_sha256 } = await here.row(id);
  const plain = {
    format: 1,
    approval_id: id,
    thread_id: request.thread_id,
    request_sha256,
    decision: 'approve',
    scope: 'once',
    constraints: {},
    comment: '',
    decided_at: new Date().toISOString(),
  } as const;
  return signDecision({ ...plain, ...change }, key);
}

/** The thread still waits, nothing has run, and `rye approvals verify` names the problem. */
async function expectNoEffect(
  here: House,
  { threadId, id }: { readonly threadId: string; readonly id: string },
  problem: string,
): Promise<void> {
  const resumed = await here.json(['threads', 'resume', threadId], 8);
  expect(resumed).toMatchObject({ status: 'suspended', waiting_for: 'approval' });
  expect(here.file('mark')).toBeUndefined();
  const report = await here.json(['approvals', 'verify', id], 3);
  expect(report).toMatchObject({ success: false, ok: false, error: { code: 'approval_invalid' } });
  expect(JSON.stringify(report['decisions'])).toContain(problem);
  expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
}

// Requirement: approvals-bound-to-request
describe('a decision that is not one', () => {
  it.each<readonly [string, string, (here: House, id: string) => Promise<SignedDecision>]>([
    ['of a stranger', 'key_untrusted', async (here, id) => await decision(here, id, here.stranger)],
    [
      "of a stranger under the owner's name",
      'signature_invalid',
      async (here, id) => {
        const signed = await decision(here, id, here.stranger);
        return { ...signed, decision: { ...signed.decision, key_id: here.key().keyId } };
      },
    ],
    [
      'with the key of a stranger in place of the one that it names',
      'signature_invalid',
      async (here, id) => {
        const { public_key: foreign } = await decision(here, id, here.stranger);
        return { ...(await decision(here, id, here.key())), public_key: foreign };
      },
    ],
    [
      'that was changed from deny to approve',
      'signature_invalid',
      async (here, id) => {
        const signed = await decision(here, id, here.key(), { decision: 'deny' });
        return { ...signed, decision: { ...signed.decision, decision: 'approve' } };
      },
    ],
    [
      'whose scope was widened',
      'signature_invalid',
      async (here, id) => {
        const signed = await decision(here, id, here.key());
        return { ...signed, decision: { ...signed.decision, scope: 'tool' } };
      },
    ],
    [
      'about another hash',
      'the hash of another request',
      async (here, id) => await decision(here, id, here.key(), { request_sha256: '0'.repeat(64) }),
    ],
    [
      'that answers a call',
      'only a question has an answer',
      async (here, id) => await decision(here, id, here.key(), { decision: 'answer', answer: 1 }),
    ],
  ])(
    '%s lets nothing run',
    async (_name, problem, forge) => {
      const here = await house(calls(marks('mark')));
      const asked = await here.asks();
      await here.plant(asked.id, await forge(here, asked.id));
      await expectNoEffect(here, asked, problem);
    },
    120_000,
  );

  it('that was given to another thread lets nothing run', async () => {
    const here = await house(calls(marks('other')), calls(marks('mark')));
    const first = await here.asks();
    const second = await here.asks();
    await here.json(['approve', first.id, '--no-resume']);
    const { decisions } = await here.row(first.id);
    await here.plant(second.id, ...decisions.map(({ signed }) => signed));
    await expectNoEffect(here, second, 'the hash of another request');
  });

  it('that was used for an earlier call does not count for the next one, though it is the same', async () => {
    const here = await house(calls(marks('first')), calls(marks('first')));
    const { threadId, id } = await here.asks();
    await here.json(['approve', id, '--no-resume']);
    await here.json(['threads', 'resume', threadId], 8);
    const [next] = await here.waiting();
    const { decisions } = await here.row(id);
    await here.plant(next?.id ?? '', ...decisions.map(({ signed }) => signed));
    await expectNoEffect(here, { threadId, id: next?.id ?? '' }, 'the hash of another request');
    expect(here.file('first')).toBe('ran\n');
  });
});

// Requirement: approvals-keys-distinct
describe('a key that may not decide', () => {
  const rule = { tool: 'rye/bash', ask: ['ada'] };

  it('is refused at once for a person who is not an approver', async () => {
    const here = await house(calls(marks('mark')));
    const ada = await here.person('ada');
    const eve = await here.person('eve');
    here.policy({ rules: [rule] }, [ada]);
    const { id } = await here.asks();
    for (const cli of [here.cli, eve.cli]) {
      const refused = await cli(['approve', id, '--json']);
      expect(refused.code, refused.stdout).toBe(4);
      expect(JSON.parse(refused.stdout)).toMatchObject({ error: { code: 'approval_invalid' } });
    }
    expect((await here.row(id)).decisions).toEqual([]);
  });

  it('does not count without the purpose, and after it was revoked', async () => {
    const here = await house(calls(marks('mark')));
    const ada = await here.person('ada', 'sign');
    here.policy({ rules: [rule] }, [ada]);
    const asked = await here.asks();
    expect((await ada.cli(['approve', asked.id, '--no-resume'])).code).toBe(0);
    await expectNoEffect(here, asked, 'wrong_purpose');
    expect((await here.row(asked.id)).state).toBe('pending');
    const own = join(ada.home, 'own.pem');
    await here.cli(['keys', 'trust', own, '--owner', 'ada', '--for', 'approve', '-y']);
    expect(await here.json(['approvals', 'verify', asked.id])).toMatchObject({ success: true });
    await here.cli(['keys', 'revoke', ada.key.keyId, '-y']);
    await expectNoEffect(here, asked, 'key_revoked');
    expect(here.bodies).toHaveLength(1);
  });

  it('counts once, however often it signs, and two names for it are refused as a quorum', async () => {
    const here = await house(calls(marks('mark')));
    const ada = await here.person('ada');
    here.policy({ rules: [{ tool: 'rye/bash', ask: ['me', 'ada'], quorum: 2 }] }, [ada]);
    const asked = await here.asks();
    for (const comment of ['once', 'twice']) {
      const decided = await here.json(['approve', asked.id, '--comment', comment]);
      expect(decided['approvals']).toMatchObject([{ state: 'pending', missing: 1 }]);
    }
    await here.json(['threads', 'resume', asked.threadId], 8);
    expect(here.file('mark')).toBeUndefined();
    const last = await ada.cli(['approve', asked.id]);
    expect(last.stdout).toBe(
      `${asked.id} approved; its owner continues it: rye threads resume ${asked.threadId}\n`,
    );
    await here.json(['threads', 'resume', asked.threadId]);
    expect(here.file('mark')).toBe('ran\n');
    const [decided] = payloads(here.log(asked.threadId), 'approval_decided');
    expect(new Set(decided?.decisions.map((one) => one.decision.key_id)).size).toBe(2);
    const other = await house();
    const { keyId: key } = other.key();
    other.policy({
      approvers: { me: { key }, myself: { key } },
      rules: [{ tool: 'rye/bash', ask: ['me', 'myself'], quorum: 2 }],
    });
    const refused = await other.cli(['run', 'pusher']);
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('config_invalid')]);
  });

  it('of the one who runs the thread does not count where four eyes are asked for', async () => {
    const here = await house(calls(marks('mark')));
    const ada = await here.person('ada');
    const me = { key: here.key().keyId, four_eyes: true };
    const approvers = { me, ada: { key: ada.key.keyId } };
    here.policy({ approvers, rules: [{ tool: 'rye/bash', ask: ['me', 'ada'] }] });
    const asked = await here.asks();
    expect((await here.cli(['approve', asked.id])).code).toBe(4);
    await here.plant(asked.id, await decision(here, asked.id, here.key()));
    await expectNoEffect(here, asked, 'four eyes');
  });
});

// Requirement: approvals-bound-to-effect
describe('what would run has changed since the approval', () => {
  /** Resumes after the change: the decision is void, and the call is asked about again. */
  async function expectAskedAgain(
    here: House,
    { threadId, id }: { readonly threadId: string; readonly id: string },
    args: readonly string[] = [],
  ): Promise<void> {
    const again = await here.json(['threads', 'resume', threadId, ...args], 8);
    expect(again['approvals']).not.toEqual([id]);
    expect(here.file('mark')).toBeUndefined();
    const [voided] = payloads(here.log(threadId), 'approval_decided');
    expect(voided).toMatchObject({ approval_id: id, outcome: 'voided' });
    expect((await here.cli(['approve', id])).code).toBe(4);
    const [next = ''] = again['approvals'] as readonly string[];
    await here.json(['approve', next, '--no-resume']);
    await here.json(['threads', 'resume', threadId]);
    expect(here.file('mark')).toBe('ran\n');
    expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
  }

  it('the item', async () => {
    const here = await house(calls(toolUse('trial_mark', {})));
    const tool = shellTool('echo ran >> "$RYE_PROJECT/mark"');
    here.signed('tools/trial/mark.sh', tool);
    here.signed(
      'directives/user.md',
      directive('user', {
        permissions: '<execute><tool ask="true">trial/mark</tool></execute>',
      }),
    );
    const asked = await here.asks('user');
    await here.json(['approve', asked.id, '--no-resume']);
    here.signed('tools/trial/mark.sh', tool.replace('echo ran', 'echo  ran'));
    await expectAskedAgain(here, asked);
  });

  it('the folder', async () => {
    const here = await house(calls(marks('mark')));
    const asked = await here.asks();
    await here.json(['approve', asked.id, '--no-resume']);
    const moved = `${here.project}-moved`;
    renameSync(here.project, moved);
    symlinkSync(moved, here.project);
    await expectAskedAgain(here, asked);
  });

  it('the plan', async () => {
    const here = await house(calls(marks('mark')));
    const asked = await here.asks();
    await here.json(['approve', asked.id, '--no-resume']);
    const path = here.path('directives/pusher.md');
    const [, ...text] = readFileSync(path, 'utf8').split('\n');
    here.signed('directives/pusher.md', `${text.join('\n')}\nPush carefully.\n`);
    await expectAskedAgain(here, asked, ['--refresh']);
  });

  it('a file that is too long to be compared, while the process of the thread waits', async () => {
    const write = toolUse('rye_file_system_write', { path: 'notes.txt', content: 'new\n' });
    const here = await house(calls(write));
    const rules = [{ tool: 'rye/file-system/write', ask: ['me'] }];
    here.policy({ rules, wait_inline: '10m' });
    const notes = join(here.project, 'notes.txt');
    const long = 'old\n'.repeat(1_400_000);
    writeFileSync(notes, long);
    const run = here.cli(['run', 'pusher', '--json']);
    const next = async (before: string): Promise<string> => {
      const other = async (): Promise<string | undefined> =>
        (await here.waiting()).map(({ id }) => id).find((id) => id !== before);
      return (await vi.waitUntil(other, { timeout: 60_000, interval: 200 })) ?? '';
    };
    const first = await next('');
    const changed = `new${long.slice(3)}`;
    writeFileSync(notes, changed);
    await here.json(['approve', first]);
    await here.json(['deny', await next(first), '--comment', 'Look again.']);
    const { code, stdout } = await run;
    expect(code, stdout).toBe(0);
    expect(here.file('notes.txt') === changed).toBe(true);
    const { thread_id: threadId } = JSON.parse(stdout) as { thread_id: string };
    expect(payloads(here.log(threadId), 'approval_decided')).toMatchObject([
      { approval_id: first, outcome: 'voided' },
      { outcome: 'denied' },
    ]);
  });

  it('but not the files that a command reads, as docs/security.md states', async () => {
    const here = await house(calls(toolUse('rye_bash', { command: 'sh deploy.sh' })));
    const script = join(here.project, 'deploy.sh');
    writeFileSync(script, 'echo ran >> mark\n');
    const { threadId, id } = await here.asks();
    await here.json(['approve', id, '--no-resume']);
    writeFileSync(script, 'echo other >> mark\n');
    await here.json(['threads', 'resume', threadId]);
    expect(here.file('mark')).toBe('other\n');
    expect(readFileSync('docs/security.md', 'utf8')).toContain('What a command reads is not bound');
  });

  it('the request in the database: it cannot be decided, and the log has the true one', async () => {
    const here = await house(calls(marks('mark')));
    const { threadId, id } = await here.asks();
    const path = join(here.project, '.ai/state/threads/registry.db');
    const database = new Database(path);
    database
      .prepare('UPDATE approvals SET requested = replace(requested, ?, ?)')
      .run('echo ran', 'echo harmless');
    database.close();
    const refused = await here.cli(['approve', id, '--json']);
    expect([refused.code, JSON.parse(refused.stdout)]).toMatchObject([
      4,
      { error: { code: 'approval_invalid' } },
    ]);
    expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
  });

  it('the log: a changed request or decision is found', async () => {
    const here = await house(calls(marks('mark')));
    const { threadId, id } = await here.asks();
    await here.json(['approve', id, '--no-resume']);
    await here.json(['threads', 'resume', threadId]);
    const file = join(here.project, '.ai/state/threads', threadId, 'transcript.jsonl');
    const text = readFileSync(file, 'utf8');
    for (const [from, to] of [
      ['echo ran', 'echo run'],
      ['"decision":"approve"', '"decision":"deny"'],
      ['"scope":"once"', '"scope":"tool"'],
    ] as const) {
      expect(text).toContain(from);
      writeFileSync(file, text.replaceAll(from, to));
      expect((await here.cli(['verify', 'thread', threadId])).code, to).toBe(3);
      expect((await here.cli(['approvals', 'verify', id])).code, to).toBe(3);
    }
    writeFileSync(file, text);
    expect((await here.cli(['verify', 'thread', threadId])).code).toBe(0);
  });
});
