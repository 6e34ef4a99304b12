import { basename } from 'node:path';
import type { ErrorCode, SourceLocation } from '../core/errors.ts';
import type { ItemType } from '../core/ids.ts';
import { assertRunnableId, categoryOf } from './binding.ts';
import { readDirective } from './directive.ts';
import type { Directive } from './directive-ast.ts';
import { parseKnowledge } from './knowledge.ts';
import { brokenDefaults, referredInputs } from './prompt.ts';
import { parseRule } from './rule.ts';
import { readSkill } from './skill.ts';
import { type ItemProblem, Locator, normalizeNewlines, Problems } from './source.ts';
import type { ToolMetadata } from './tool-metadata.ts';
import { readToolMetadata } from './tool-metadata-fs.ts';

/** An item's file to validate before signing. */
export interface ItemSource {
  readonly type: ItemType;
  readonly id: string;
  readonly path: string;
  readonly text: string;
}

const SEMVER = /^\d+\.\d+\.\d+$/;
const DIRECTIVE_NAME = /^[a-z][a-z0-9_-]*$/;

const MALFORMED: Readonly<Record<ItemType, ErrorCode>> = {
  directive: 'directive_malformed',
  tool: 'tool_malformed',
  knowledge: 'knowledge_malformed',
  rule: 'rule_malformed',
  skill: 'skill_malformed',
};

/**
 * Returns all problems of an item in file order: syntax errors, violated requirements of signing, and warnings for
 * doubtful content. Never throws for a problem of the item.
 */
export async function validateItem(source: ItemSource): Promise<readonly ItemProblem[]> {
  const problems = new Problems();
  const { type, path } = source;
  try {
    await CHECKS[type](source, problems);
  } catch (error) {
    problems.caught(error, { code: MALFORMED[type], location: { path, line: 1 } });
  }
  return problems.all.toSorted(
    (a, b) =>
      (a.location.line ?? 0) - (b.location.line ?? 0) ||
      (a.location.column ?? 0) - (b.location.column ?? 0),
  );
}

type Check = (source: ItemSource, problems: Problems) => void | Promise<void>;

const CHECKS: Readonly<Record<ItemType, Check>> = {
  directive: checkDirective,
  knowledge: checkKnowledge,
  tool: checkTool,
  rule: (source, problems) => {
    const rule = parseRule(source.text, source.path);
    problems.addAll(rule.warnings);
    if (rule.conditions.length === 0 && !rule.match && !rule.alwaysApply) {
      problems.warn({
        code: 'rule_malformed',
        message: 'the rule has no condition, so it never matches',
        location: { path: source.path, line: 1 },
        hint: 'Add condition: <regular expression>.',
      });
    }
  },
  skill: (source, problems) => {
    problems.addAll(readSkill(source.text, source.path).problems.all);
  },
};

/** Reports an id that a run would refuse. */
function checkId({ type, id, path }: ItemSource, problems: Problems): void {
  try {
    assertRunnableId({ type, id, path });
  } catch (error) {
    problems.caught(error, { code: MALFORMED[type], location: { path, line: 1 } });
  }
}

function checkDirective(source: ItemSource, problems: Problems): void {
  const { id, path, text } = source;
  checkId(source, problems);
  const { directive, problems: found } = readDirective(text, path);
  problems.addAll(found.all);
  const place = (key: string): SourceLocation => placeOfOrigin(directive, key);
  const error = (key: string, message: string, hint?: string): void =>
    problems.error({ code: 'directive_malformed', message, location: place(key), hint });
  const name = basename(id);
  if (directive.name !== '' && directive.name !== name) {
    error('name', `the name "${directive.name}" differs from the file name "${name}"`);
  } else if (!DIRECTIVE_NAME.test(directive.name)) {
    error('name', `the name "${directive.name}" is not lower-case letters, digits, _ and -`);
  }
  if (directive.origins['version'] === undefined)
    error('version', 'version is missing', 'Add version="1.0.0".');
  else if (!SEMVER.test(directive.version))
    error('version', `the version "${directive.version}" is not X.Y.Z`);
  if (directive.description === '') error('description', 'description is missing or empty');
  if (directive.author === '') error('author', 'author is missing or empty');
  const category = categoryOf(id);
  if (directive.category === undefined)
    error('category', 'category is missing', `Add <category>${category}</category>.`);
  else if (directive.category !== category) {
    error('category', `the category "${directive.category}" differs from the folder "${category}"`);
  }
  checkReferences(directive, text, problems);
  if (directive.body === '' && directive.steps.length === 0) {
    problems.warn({
      code: 'directive_malformed',
      message: 'the directive has neither instructions below the fence nor a process',
      location: { path, line: 1 },
    });
  }
}

/** Warns about `{input:k}` without a default and a declaration, which stays in the text. */
function checkReferences(directive: Directive, text: string, problems: Problems): void {
  // An ancestor may declare the inputs of a directive that declares none.
  // hooks have more kinds of alternatives, and are checked with their events
  const ownText = text.replaceAll(/<hooks\b[\s\S]*?<\/hooks>/g, '');
  for (const expression of brokenDefaults(ownText)) {
    problems.error({
      code: 'directive_malformed',
      message: `the expression ${expression} is no reference, so it would stay in the text`,
      location: { path: directive.path },
      hint: "Write {input:name:default}, or ${inputs.name || 'default'}. References to steps have no default.",
    });
  }
  if (directive.inputs.length === 0 && directive.extends !== undefined) return;
  const normalized = normalizeNewlines(text);
  const locator = new Locator({ path: directive.path, text: normalized, line: 1, column: 1 });
  const declared = new Set(directive.inputs.map(({ name }) => name));
  for (const { name, offset } of referredInputs(normalized)) {
    if (declared.has(name)) continue;
    problems.warn({
      code: 'directive_malformed',
      message: `the text refers to the input "${name}", which is not declared`,
      location: locator.at(offset),
      hint: `Add <input name="${name}"/>, or write {input:${name}?} if it may be absent.`,
    });
  }
}

function placeOfOrigin(directive: Directive, key: string): SourceLocation {
  const origin = directive.origins[key] ?? directive.origins['name'] ?? '';
  const line = Number(/:(\d+)$/.exec(origin)?.[1] ?? 1);
  return { path: directive.path, line };
}

function checkKnowledge({ id, path, text }: ItemSource, problems: Problems): void {
  const knowledge = parseKnowledge(text, path);
  const { mapping, metadata } = knowledge;
  const error = (key: string, message: string, hint?: string): void =>
    problems.error({ code: 'knowledge_malformed', message, location: mapping.locate(key), hint });
  const name = basename(id);
  if (knowledge.name === undefined) error('name', 'name is missing', `Add name: ${name}.`);
  else if (knowledge.name !== name)
    error('name', `the name "${knowledge.name}" differs from the file name "${name}"`);
  if (metadata['title'] === undefined || metadata['title'] === null)
    error('title', 'title is missing');
  if (knowledge.entryType === undefined) error('entry_type', 'entry_type is missing');
  const { version } = metadata;
  if (version === undefined || version === null)
    error('version', 'version is missing', 'Add version: "1.0.0".');
  else if (typeof version !== 'string' || !SEMVER.test(version)) {
    error(
      'version',
      `the version ${JSON.stringify(version)} is not the text X.Y.Z`,
      'Quote it: version: "1.0.0".',
    );
  }
  const category = categoryOf(id);
  if (knowledge.category !== undefined && knowledge.category !== category) {
    error('category', `the category "${knowledge.category}" differs from the folder "${category}"`);
  }
}

/** Example header for languages whose constants rye does not read. */
const HEADER_EXAMPLE = `# rye:tool
# version: 1.0.0
# description: Counts words.
# parameters: [{name: path, type: string, required: true}]
# /rye:tool`;

async function checkTool(source: ItemSource, problems: Problems): Promise<void> {
  const { id, path, text } = source;
  const tool = await readToolMetadata(text, path);
  const location = { path, line: 1 };
  const missing = (what: string, hint: string): void =>
    problems.error({ code: 'tool_malformed', message: `${what} is missing`, location, hint });
  if (!checkRuntime(tool, problems)) return;
  checkId(source, problems);
  checkDescription(tool, missing);
  if (tool.version !== undefined && !SEMVER.test(tool.version)) {
    problems.error({
      code: 'tool_malformed',
      message: `the version "${tool.version}" is not X.Y.Z`,
      location,
    });
  }
  const category = categoryOf(id);
  if (tool.category !== undefined && tool.category !== category) {
    const message = `the category "${tool.category}" differs from the folder "${category}"`;
    problems.error({ code: 'tool_malformed', message, location });
  }
}

/** Reports why a tool cannot run; false if the file is not a tool and needs no description. */
function checkRuntime(
  { unsupported, path, description }: ToolMetadata,
  problems: Problems,
): boolean {
  if (unsupported === undefined) return true;
  const location = { path, line: 1 };
  if (unsupported.details?.['part_of'] !== undefined) {
    const { message, code } = unsupported;
    problems.warn({ code, message: message.replace(/^[^ ]+: /, ''), location });
    return false;
  }
  problems.caught(unsupported, { code: 'tool_unsupported', location });
  return description !== '';
}

function checkDescription(
  { kind, description, version }: ToolMetadata,
  missing: (what: string, hint: string) => void,
): void {
  const hasConstants = kind === 'python' || kind === 'javascript';
  if (description === '') {
    const example = hasConstants
      ? 'as a constant, such as __tool_description__ = "Counts words."'
      : `in a header:\n${HEADER_EXAMPLE}`;
    const place = kind === 'manifest' ? 'in the manifest: description: Counts words.' : example;
    missing('description', `Describe the tool for the model ${place}`);
  }
  if (version === undefined) {
    missing('version', hasConstants ? 'Add __version__ = "1.0.0".' : 'Add version: 1.0.0 to it.');
  }
}
