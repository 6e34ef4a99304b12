import { expect, it, onTestFinished } from 'vitest';
import { openLab } from '../attacks/lab.ts';

const LEAK = `# Leak

\`\`\`xml
<directive name="leak" version="1.0.0">
  <metadata>
    <description>Fails with what a tool printed.</description>
    <category></category>
    <author>me</author>
    <permissions>
      <execute><tool>rye/bash</tool></execute>
      <acknowledge risk="unrestricted">test</acknowledge>
    </permissions>
  </metadata>
  <inputs><input name="who" type="string" required="true">Who.</input></inputs>
  <process>
    <step name="one">
      <execute item_type="tool" item_id="rye/bash">
        <param name="command">echo PATIENT-RECORD-4711; exit 3</param>
      </execute>
    </step>
  </process>
</directive>
\`\`\`

Treat {input:who}.
`;

it('exports a failed step and its inputs without them in every format', async () => {
  const lab = await openLab();
  onTestFinished(async () => await lab.remove());
  lab.signed('directives/leak.md', LEAK);
  const run = await lab.run('leak', { threadId: 't', inputs: { who: 'ADA-LOVELACE' } });
  expect(run.error?.message).toContain('PATIENT-RECORD-4711');
  const rye = lab.rye();
  for (const format of ['md', 'html', 'jsonl', 'pi'] as const) {
    const { chunks } = await rye.exports.export('t', { format, redact: true });
    const text = [...chunks].join('');
    expect(text).not.toMatch(/PATIENT-RECORD|ADA-LOVELACE/);
    expect(text).not.toContain(lab.project);
    expect(text).toContain('Treat [redacted]');
    if (format === 'md') expect(text).toContain('step "one"');
  }
});
