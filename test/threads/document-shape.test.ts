import { expect, it, onTestFinished } from 'vitest';
import { signDocument } from '../../src/trust/signature.ts';
import { directive, openLab } from '../attacks/lab.ts';
import { says } from '../helpers/wire-server.ts';

it.each([
  ['lacks its capabilities', { capabilities: undefined }],
  ['has an unknown status', { status: 'paused' }],
  ['has a limit that is no number', { limits: { turns: 'many' } }],
  ['names its log by a path', { transcript: 'transcript.jsonl' }],
])('a signed thread.json is refused when it %s', async (_case, change) => {
  const lab = await openLab();
  onTestFinished(async () => await lab.remove());
  await lab.model(() => says('Done.'));
  lab.signed('directives/work.md', directive('work'));
  const { thread_id: id } = await lab.run('work', { threadId: 'one' });
  const path = `state/threads/${id}/thread.json`;
  const changed = { ...JSON.parse(lab.read(path)), ...change };
  const signing = { subject: { kind: 'thread', id }, key: lab.key(), now: 0 };
  lab.write(path, JSON.stringify(signDocument(JSON.parse(JSON.stringify(changed)), signing)));
  const resumed = lab.rye().recovery.resume({ threadId: id, message: 'Go on.' });
  await expect(resumed).rejects.toMatchObject({
    code: 'log_malformed',
    message: 'thread.json of one has an unknown format',
  });
});
