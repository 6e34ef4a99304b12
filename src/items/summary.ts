import type { ItemType } from '../core/ids.ts';
import { normalizeNewlines } from './source-text.ts';

/** What a listing shows of an item. Empty strings where the file says nothing that can be seen cheaply. */
export interface ItemSummary {
  readonly version: string;
  readonly description: string;
}

/** Enough of a file for its metadata. */
const HEAD = 16 * 1024;
const MAX_DESCRIPTION = 200;

/**
 * Version and description for `rye list`, by patterns over the head of the file: fast, never fails, and no judgement on whether the file is valid.
 */
export function summarize(type: ItemType, text: string): ItemSummary {
  return SUMMARIES[type](normalizeNewlines(text.slice(0, HEAD)));
}

const SUMMARIES: Readonly<Record<ItemType, (head: string) => ItemSummary>> = {
  directive: (head) =>
    summary(
      /<directive\b[^>]*?\bversion\s*=\s*["']([^"']*)["']/.exec(head)?.[1],
      decode(/<description>([\s\S]*?)<\/description>/.exec(head)?.[1]),
    ),
  tool: (head) =>
    summary(
      constant(head, '__version__') ?? member(head, 'version'),
      constant(head, '__tool_description__') ?? member(head, 'description'),
    ),
  knowledge: (head) =>
    summary(
      member(head, 'version'),
      member(head, 'description') ?? member(head, 'title') ?? member(head, 'name'),
    ),
  rule: metadataSummary,
  skill: metadataSummary,
};

function metadataSummary(head: string): ItemSummary {
  return summary(member(head, 'version'), member(head, 'description'));
}

function summary(version: string | undefined, description: string | undefined): ItemSummary {
  const line = (description ?? '').replaceAll(/\s+/g, ' ').trim();
  return {
    version: (version ?? '').trim(),
    description: line.length > MAX_DESCRIPTION ? `${line.slice(0, MAX_DESCRIPTION - 1)}…` : line,
  };
}

/** `name = "text"` in JavaScript or Python. */
function constant(text: string, name: string): string | undefined {
  const found = new RegExp(
    `^(?:export )?(?:const |let |var )?${name}(?::[^=]*)?\\s*=\\s*(["'\`])(.*?)\\1`,
    'm',
  ).exec(text);
  return found?.[2];
}

/** `name: text` on a line of YAML, also behind a comment mark. */
function member(text: string, name: string): string | undefined {
  const found = new RegExp(`^(?:[#;%*/ -]* )?${name}:[ \\t]*(.+)$`, 'm').exec(text)?.[1]?.trim();
  if (found === undefined || /^[|>]/.test(found)) return undefined;
  return /^(["'])(.*)\1(?:\s*#.*)?$/.exec(found)?.[2] ?? found.replace(/\s+#.*$/, '');
}

const ENTITIES: Readonly<Record<string, string>> = {
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
  amp: '&',
};

function decode(text: string | undefined): string | undefined {
  return text?.replaceAll(
    /&(lt|gt|quot|apos|amp);/g,
    (whole, name: string) => ENTITIES[name] ?? whole,
  );
}
