import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import type { ImageBlock } from '../../src/kernel/core/message.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { reply, type WireServer } from '../helpers/wire-server.ts';

const DOT: ImageBlock = {
  type: 'image',
  media_type: 'image/png',
  data: 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
};

let lab: Lab;
let rye: Rye;
let server: WireServer;

beforeEach(async () => {
  lab = await openLab();
  server = await lab.model(() => reply('Seen.'));
  lab.signed('directives/work.md', directive('work', { limits: 'turns="10" spend="1.00"' }));
  rye = lab.rye();
});

afterEach(async () => await lab.remove());

async function finished(): Promise<string> {
  const options = { model: 'claude-haiku-5-5', provider: 'anthropic' };
  return (await lab.run('work', options)).thread_id;
}

async function exported(id: string, format: 'html' | 'jsonl' | 'md' | 'pi', redact = false) {
  return [...(await rye.exports.export(id, { format, redact })).chunks].join('');
}

/** The last request as the model got it. */
function lastRequest(): string {
  return JSON.stringify(server.requests.at(-1)?.body);
}

describe('an image in a custom message', () => {
  it('reaches the model, the page and pi, and no redacted export', async () => {
    const id = await finished();
    await rye.trees.appendCustomMessage(id, {
      customType: 'my-program',
      content: 'A screenshot.',
      images: [DOT],
      display: true,
    });
    await rye.recovery.resume({ threadId: id });
    expect(lastRequest()).toContain(DOT.data);
    expect(lastRequest()).toContain('A screenshot.');
    expect((await rye.trees.context(id)).messages.at(-2)).toEqual({
      role: 'user',
      content: [{ type: 'text', text: 'A screenshot.' }, DOT],
    });
    expect(await exported(id, 'html')).toContain(`src="data:image/png;base64,${DOT.data}"`);
    expect(await exported(id, 'md')).toContain('my-program, 1 image');
    const content = [
      { type: 'text', text: 'A screenshot.' },
      { type: 'image', data: DOT.data, mimeType: 'image/png' },
    ];
    const lines = (await exported(id, 'pi')).trim().split('\n');
    expect(lines.map((line) => JSON.parse(line))).toContainEqual(
      expect.objectContaining({ type: 'custom_message', customType: 'my-program', content }),
    );
    for (const format of ['html', 'jsonl', 'md', 'pi'] as const) {
      expect(await exported(id, format, true)).not.toContain(DOT.data);
    }
    expect((await rye.threads.verify(id)).ok).toBe(true);
  });

  it('is refused where it is no image that a provider reads', async () => {
    const id = await finished();
    const message = { customType: 'my-program', content: '', display: true };
    for (const data of ['', 'aGk=', 'iVBORw0KGgo…']) {
      await expect(
        rye.trees.appendCustomMessage(id, { ...message, images: [{ ...DOT, data }] }),
      ).rejects.toMatchObject({ code: 'invalid_input' });
    }
  });
});
