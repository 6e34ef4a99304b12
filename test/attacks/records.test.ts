import { appendFileSync, copyFileSync, truncateSync } from 'node:fs';
import { describe } from 'vitest';
import { signDocument } from '../../src/kernel/trust/signature.ts';
import { attacks, harmless, type Lab } from './lab.ts';

const LOG = 'state/threads/one/transcript.jsonl';

/** The code with which verification of a finished thread fails after an edit; `ok` when it notices nothing. */
const verified = (edit: (lab: Lab) => unknown) => async (lab: Lab) => {
  await lab.run('hello', { threadId: 'one' });
  await edit(lab);
  const { ok, checks } = await lab.rye().threads.verify('one');
  return ok ? 'ok' : (checks.find((check) => !check.ok)?.error?.code ?? 'no code');
};

const lines = (edit: (all: string[]) => readonly string[]) =>
  verified((lab) => {
    const all = lab.read(LOG).trimEnd().split('\n');
    lab.write(LOG, `${edit(all).join('\n')}\n`);
  });

describe('logs', () => {
  attacks([
    {
      name: 'edits a message',
      code: 'transcript_tampered',
      run: verified((lab) =>
        lab.write(LOG, lab.read(LOG).replace('Hello, world!', 'Hello, eve!!!')),
      ),
    },
    {
      name: 'removes a line',
      code: 'transcript_tampered',
      run: lines((all) => all.filter((_line, index) => index !== 3)),
    },
    {
      name: 'exchanges two lines',
      code: 'transcript_tampered',
      run: lines(([header = '', one = '', two = '', ...rest]) => [header, two, one, ...rest]),
    },
    {
      name: 'repeats a line',
      code: 'transcript_tampered',
      run: lines((all) => [...all.slice(0, 4), all[3] ?? '', ...all.slice(4)]),
    },
    {
      // Requirement: no-checkpoint-valid, record-edits-found
      name: 'removes every checkpoint',
      code: 'transcript_tampered',
      run: lines((all) => all.filter((line) => !line.includes('"checkpoint"'))),
    },
    {
      name: 'cuts the end off, after a checkpoint',
      code: 'transcript_tampered',
      run: lines((all) => {
        const first = all.findIndex((line) => line.includes('"event_type":"checkpoint"'));
        return all.slice(0, first + 1);
      }),
    },
    {
      name: 'cuts the end off in the middle of a line',
      code: 'transcript_tampered',
      run: verified((lab) => truncateSync(lab.path(LOG), 400)),
    },
    {
      name: 'appends an event',
      code: 'transcript_tampered',
      run: verified((lab) =>
        appendFileSync(
          lab.path(LOG),
          '{"seq":999,"timestamp":"2026-01-01T00:00:00.000Z","thread_id":"one","event_type":"note","payload":{"text":"I was good"}}\n',
        ),
      ),
    },
    {
      // Requirement: checkpoint-unbound
      name: 'puts the log of another thread in its place',
      code: 'transcript_tampered',
      run: verified(async (lab) => {
        await lab.run('hello', { threadId: 'two' });
        copyFileSync(lab.path('state/threads/two/transcript.jsonl'), lab.path(LOG));
      }),
    },
    {
      name: 'empties the log',
      code: 'transcript_tampered',
      run: verified((lab) => lab.write(LOG, '')),
    },
    {
      name: 'edits thread.json',
      code: 'thread_tampered',
      run: verified((lab) => {
        const path = 'state/threads/one/thread.json';
        lab.write(path, lab.read(path).replace('"completed"', '"cancelled"'));
      }),
    },
    {
      name: 'puts an older thread.json back',
      code: 'transcript_tampered',
      run: async (lab) => {
        let older = '';
        const path = 'state/threads/one/thread.json';
        await lab.run('hello', {
          threadId: 'one',
          onEvent: () => {
            older ||= lab.read(path);
          },
        });
        const { transcript: _end, ...running } = JSON.parse(older);
        if (running.status !== 'running') throw new Error('no older document was seen');
        lab.write(path, older);
        lab.write(LOG, lab.read(LOG).replace('Hello, world!', 'Hello, eve!!!'));
        const { checks } = await lab.rye().threads.verify('one');
        return checks.find((check) => !check.ok)?.error?.code ?? 'ok';
      },
    },
    {
      name: 'edits the capability snapshot',
      code: 'content_modified',
      run: verified((lab) => {
        const path = 'state/threads/one/capabilities.md';
        lab.write(path, lab.read(path).replace('Granted', 'Wanted'));
      }),
    },
    {
      name: 'edits the export',
      code: 'content_modified',
      run: verified((lab) => {
        const path = 'knowledge/agent/threads/hello/one.md';
        lab.write(path, lab.read(path).replace('Hello', 'Bye'));
      }),
    },
    {
      name: 'signs thread.json with an untrusted key',
      code: 'key_untrusted',
      run: verified(async (lab) => {
        const path = 'state/threads/one/thread.json';
        const signed = signDocument(JSON.parse(lab.read(path)), {
          subject: { kind: 'thread', id: 'one' },
          key: lab.stranger,
          now: 0,
        });
        lab.write(path, JSON.stringify(signed));
      }),
    },
    {
      name: 'asks for a thread by a path',
      code: 'invalid_thread_id',
      run: (lab) => lab.rye().threads.verify('../../../etc'),
    },
  ]);

  harmless([
    { name: 'leaves everything as it is', expected: 'ok', run: verified(() => undefined) },
    {
      name: 'reformats thread.json: its canonical form is what was signed',
      expected: 'ok',
      run: verified((lab) => {
        const path = 'state/threads/one/thread.json';
        const shuffled = Object.fromEntries(
          Object.entries(JSON.parse(lab.read(path))).toReversed(),
        );
        lab.write(path, JSON.stringify(shuffled));
      }),
    },
  ]);
});
