import { readFileSync } from 'node:fs';
import { expect, it, onTestFinished } from 'vitest';
import { parseKnowledge } from '../../src/kernel/items/knowledge.ts';
import { directive, openLab } from '../attacks/lab.ts';
import { reply } from '../helpers/wire-server.ts';

it('names each run of a thread in its exports, and finds the texts of all of them', async () => {
  const lab = await openLab();
  onTestFinished(async () => await lab.remove());
  await lab.model(({ index }) => reply(['The apricot.', 'The blueberry.'][index] ?? 'Done.'));
  lab.signed('directives/work.md', directive('work'));
  await lab.run('work', { model: 'claude-haiku-5-5', provider: 'anthropic', threadId: 't' });
  const rye = lab.rye();
  await rye.recovery.resume({ threadId: 't', message: 'A cherry?' });
  const { document, paths } = await rye.threads.show('t');
  const runs = document?.runs ?? [];
  expect(runs).toHaveLength(2);
  const exported = async (format: 'md' | 'html') =>
    [...(await rye.exports.export('t', { format })).chunks].join('');
  const knowledge = readFileSync(paths.knowledge, 'utf8');
  const markdown = await exported('md');
  for (const text of [knowledge, markdown]) {
    expect(parseKnowledge(text, 't.md').metadata).toMatchObject({
      runs: runs.map(({ run, started_at, status, cost }) => {
        const { turns, spend } = cost;
        return { run, started_at, status, turns, spend };
      }),
    });
    expect(text).toMatch(
      /apricot[^]*\n## Run 2\n\n`resumed`, started [^\n]+, completed, 1 turn, \$[\d.]+\n[^]*cherry/,
    );
    expect(text.match(/^## Run /gm)).toHaveLength(1);
  }
  const page = await exported('html');
  expect(page).toMatch(/<dt>Runs<\/dt><dd>1: [^<]+, completed, \$[\d.]+ · 2: [^<]+, completed, \$/);
  expect(page).toMatch(/<b>Run 2<\/b><span>· resumed · [^<]*completed · \$/);
  for (const word of ['apricot', 'cherry']) {
    const { results } = await rye.items.search('knowledge', word);
    expect(results).toHaveLength(1);
  }
});
