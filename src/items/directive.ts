import { itemIdProblem } from '../core/ids.ts';
import { compact } from '../core/json.ts';
import type { Directive } from './directive-ast.ts';
import { OPAQUE_ELEMENTS } from './directive-ast.ts';
import type { DirectiveDraft } from './directive-draft.ts';
import { newDraft, noteOrigin } from './directive-draft.ts';
import { readMetadata } from './directive-metadata.ts';
import { readDeclarations } from './directive-parameters.ts';
import { findFence, linesBetween } from './markdown.ts';
import { Problems } from './problem.ts';
import { readBodyProcess, readProcess } from './process.ts';
import { rememberParsed } from './remember-parsed.ts';
import type { SourceText } from './source-text.ts';
import { normalizeNewlines } from './source-text.ts';
import type { XmlElement } from './xml.ts';
import { childElements, parseXml } from './xml.ts';

/**
 * Parses a directive file: a signature comment, free Markdown, the first `xml` fence with one `<directive>`, the body.
 * Throws the first error found (`directive_malformed`, `xml_malformed`, `permission_malformed`, `unknown_limit`, `invalid_limit`) with its place in
 * the file; unknown elements are only warnings.
 */
export const parseDirective = rememberParsed((text, path): Directive => {
  const { directive, problems } = readDirective(text, path);
  problems.throwIfAny();
  return directive;
});

/**
 * Parses like {@link parseDirective} but goes on after an error where it can, so that `rye validate` can report all of them. Throws only
 * where there is no directive element to read.
 */
export function readDirective(
  text: string,
  path: string,
): { readonly directive: Directive; readonly problems: Problems } {
  const normalized = normalizeNewlines(text);
  const lines = normalized.split('\n');
  const problems = new Problems();
  const fence = findFence(normalized, ['xml']);
  if (fence === undefined) {
    problems.error({
      code: 'directive_malformed',
      message: 'no ```xml fence with a <directive> element',
      location: { path, line: 1 },
      hint: 'Put the <directive> element between a line ```xml and a line ```.',
    });
    problems.throwIfAny();
  }
  const { content = '', line = 1, endLine = lines.length + 1, closed = true } = fence ?? {};
  if (!closed) {
    problems.error({
      code: 'directive_malformed',
      message: 'the xml fence is not closed',
      location: { path, line, column: 1 },
      hint: 'Close it with a fence of the same character, at least as long as the opening one.',
    });
    problems.throwIfAny();
  }
  const root = parseXml({ path, text: content, line: line + 1, column: 1 }, OPAQUE_ELEMENTS);
  const draft = newDraft(path, problems);
  readRoot(root, draft);
  readChildren(root, draft);
  const body = bodySource(lines, endLine, path);
  if (body.text !== '') noteOrigin(draft, 'body', { path, line: body.line });
  if (draft.steps.length === 0) readBodyProcess(body, draft);
  return { directive: finish(draft, linesBetween(lines, 1, line), body.text), problems };
}

function bodySource(lines: readonly string[], from: number, path: string): SourceText {
  const blank = lines.slice(from - 1).findIndex((line) => line.trim() !== '');
  const start = blank === -1 ? from : from + blank;
  return { path, text: linesBetween(lines, start, lines.length + 1), line: start, column: 1 };
}

function readRoot(root: XmlElement, draft: DirectiveDraft): void {
  const { problems } = draft;
  const fail = (message: string, hint?: string): void =>
    problems.error({ code: 'directive_malformed', message, location: root.location, hint });
  if (root.name !== 'directive') {
    fail(
      `the first xml fence holds <${root.name}>, not <directive>`,
      'The first fence with the info string xml must hold the directive.',
    );
    problems.throwIfAny();
  }
  for (const [name, value] of root.attributes) {
    if (name === 'name') draft.name = value.trim();
    else if (name === 'version') draft.version = value.trim();
    else if (name === 'extends') draft.extends = value.trim();
    else
      fail(
        `<directive> has the unknown attribute "${name}"`,
        'It takes name, version and extends.',
      );
    noteOrigin(draft, name, root.location);
  }
  if (draft.name === '') fail('<directive> has no name', 'Add name="…", equal to the file name.');
  if (draft.extends !== undefined) {
    const problem = itemIdProblem(draft.extends);
    if (problem !== undefined) fail(`extends="${draft.extends}" is not a directive id: ${problem}`);
  }
}

const ACTIONS: ReadonlySet<string> = new Set(['execute', 'fetch', 'sign']);

function readChildren(root: XmlElement, draft: DirectiveDraft): void {
  for (const child of childElements(root)) {
    if (child.name === 'inputs' || child.name === 'outputs') readDeclarations(child, draft);
    else if (child.name === 'process') readProcess(child, draft);
    else if (!ACTIONS.has(child.name) && !OPAQUE_ELEMENTS.has(child.name)) {
      const members = child.name === 'metadata' ? childElements(child) : [child];
      for (const member of members) readMetadata(member, draft);
    }
  }
  // Actions outside a process are the familiar short form of a process without named steps.
  const loose = childElements(root).filter(({ name }) => ACTIONS.has(name));
  if (draft.steps.length === 0 && loose.length > 0)
    readProcess({ ...root, children: loose }, draft);
}

function finish(draft: DirectiveDraft, preamble: string, body: string): Directive {
  const { problems, permissions, hooks, version, limits, metadataText, ...rest } = draft;
  return compact({
    ...rest,
    version: version === '' ? '0.0.0' : version,
    description: metadataText.get('description') ?? '',
    category: metadataText.get('category'),
    author: metadataText.get('author') ?? '',
    continuationDirective: metadataText.get('continuation_directive') || undefined,
    rawLimits: limits,
    rawHooks: hooks,
    permissions: { ...permissions, xml: permissions.xml.join('\n') },
    body,
    preamble,
    warnings: problems.warnings,
  });
}
