import { describe, expect, it } from 'vitest';
import { directive, openLab } from '../attacks/lab.ts';

const RLO = '\u{202E}';
const TEXT = `pay${RLO}001\u{2066}x\u{2069} \u{1B}[31mred\u{9B}31m\u{0007} end`;

describe('an export', () => {
  it.each(['md', 'html'] as const)(
    'holds no bidirectional control and no terminal control in %s when the model writes them',
    async (format) => {
      const lab = await openLab();
      try {
        await lab.model([{ steps: [{ kind: 'text', chunks: [TEXT, ' &#x202E;'] }] }]);
        lab.signed('directives/work.md', directive('work'));
        const { thread_id: id } = await lab.run('work', { threadId: 't' });
        const { chunks } = await lab.rye().exports.export(id, { format });
        const text = [...chunks].join('');
        expect(text).toContain('pay001x');
        expect(text).not.toMatch(/[\u202a-\u202e\u2066-\u2069]|(?![\n\t])\p{Cc}/u);
      } finally {
        await lab.remove();
      }
    },
  );

  it('into knowledge verifies when the model writes them', async () => {
    const lab = await openLab();
    try {
      await lab.model([{ steps: [{ kind: 'text', chunks: [TEXT] }] }]);
      lab.signed('directives/work.md', directive('work'));
      await lab.run('work', { threadId: 't' });
      const text = lab.read('knowledge/agent/threads/work/t.md');
      expect(text).not.toMatch(/[\u202a-\u202e\u2066-\u2069]|(?![\n\t])\p{Cc}/u);
      const { checks } = await lab.rye().threads.verify('t');
      expect(checks.filter(({ ok }) => !ok)).toEqual([]);
    } finally {
      await lab.remove();
    }
  });
});
