import { pathTo } from '../log/tree.ts';
import { renderEvent } from './conversation.ts';
import { renderHead, renderOutcome } from './knowledge.ts';
import { inlineCode } from './markdown.ts';
import type { ExportSource } from './source.ts';

/** The path to the leaf as a readable conversation: the form of the knowledge entry, one branch, with its labels. */
export function* exportMarkdown({ tree, leafId, facts }: ExportSource): Iterable<string> {
  yield renderHead(facts).join('\n\n');
  for (const entry of pathTo(tree, leafId)) {
    const blocks = renderEvent(entry);
    const label = tree.labels.get(entry.id);
    if (label !== undefined) yield `\n\n*Label:* ${inlineCode(label)}`;
    for (const block of blocks) yield `\n\n${block}`;
  }
  for (const block of renderOutcome(facts)) yield `\n\n${block}`;
  yield '\n';
}
