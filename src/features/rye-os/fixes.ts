import { basename, dirname } from 'node:path';
import { aliasesOf } from '../../kernel/core/ids.ts';
import type { TreeFile } from './files.ts';

/** The problem of an item that decides how its text is fixed. */
export interface Fault {
  readonly code: string;
  readonly message: string;
  readonly hint: string | undefined;
}

/** The text with the mechanical changes that an item of Rye OS needs; the same text if there are none. */
export function fixed(
  file: Pick<TreeFile, 'type' | 'id' | 'extension'>,
  text: string,
  fault: Fault | undefined,
): string {
  if (file.type === 'directive') return fixDirective(file.id, text, fault);
  if (file.type === 'tool') return fixTool(file, text, fault);
  return file.type === 'knowledge' ? fixCategory(text, file.id) : text;
}

function categoryOf(id: string): string {
  const folder = dirname(id);
  return folder === '.' ? '' : folder;
}

function fixDirective(id: string, text: string, fault: Fault | undefined): string {
  const fence = /^```xml[ \t]*\n[\s\S]*?^```/m.exec(text);
  if (fence === null) return text;
  const [xml] = fence;
  const tag = /<directive\b[^>]*>/.exec(xml)?.[0] ?? '';
  const name = tag.replace(/\bname=(["'])[^"']*\1/, `name="${basename(id)}"`);
  const named = /\bversion=/.test(name)
    ? name
    : name.replace('<directive', '<directive version="1.0.0"');
  let next = xml.replace(tag, () => named);
  const category = `<category>${categoryOf(id)}</category>`;
  if (/<category\s*\/>|<category>[^<]*<\/category>/.test(next)) {
    next = next.replace(/<category\s*\/>|<category>[^<]*<\/category>/, category);
  } else next = next.replace(/<metadata>/, `<metadata>\n    ${category}`);
  if (!/<author>[^<]*\S[^<]*<\/author>/.test(next)) {
    next = next.replace(/<author>\s*<\/author>\s*|<author\s*\/>\s*/, '');
    next = next.replace(/<metadata>/, '<metadata>\n    <author>imported</author>');
  }
  next = next
    .replaceAll(/<(\/?)(?:search|load)>/g, '<$1fetch>')
    .replaceAll(/<cap>\s*rye\.([^<]*?)\s*<\/cap>/g, (_all, rest: string) => grantOf(rest));
  next = renamed(next);
  // the base for reviews of Rye OS was no bound on what extends it
  if (fault?.code === 'ceiling_exceeded') {
    next = next.replace(/\bextends=(["'])rye\/core\/base_\w+\1/, 'extends="rye/core/base"');
  }
  if (fault?.code === 'model_not_found') {
    next = next.replace(
      /<model\b([^>]*?)\/>|<model\b([^>]*)>\s*<\/model>/,
      (_all, one?: string, two?: string) => {
        const tier = /\btier=["']([^"']+)["']/.exec(one ?? two ?? '')?.[1];
        const isTier =
          /^(?:fast|general|high|max|low|small|mini|haiku|medium|default|sonnet|large|opus|orchestrator)$/.test(
            tier ?? '',
          );
        return `<model tier="${isTier ? (tier ?? '') : 'general'}" />`;
      },
    );
  }
  const body = renamedBody(text.slice(fence.index + xml.length));
  return text.slice(0, fence.index) + next + body;
}

/** `<cap>` of the oldest form as an element of its verb. */
function grantOf(rest: string): string {
  const [verb = '', ...parts] = rest.split('.');
  const target = parts.join('.') || '*';
  const known: Readonly<Record<string, string>> = {
    execute: 'execute',
    sign: 'sign',
    fetch: 'fetch',
    load: 'fetch',
    search: 'fetch',
  };
  const name = known[verb];
  return name === undefined
    ? rest === '*'
      ? '<execute>*</execute>'
      : ''
    : `<${name}>${target}</${name}>`;
}

const RENAMES = (['tool', 'directive', 'knowledge'] as const).flatMap((type) =>
  Object.entries(aliasesOf(type)),
);

/** Old ids in attributes and in elements whose whole text is an id. */
function renamed(xml: string): string {
  let text = xml;
  for (const [old, id] of RENAMES) {
    text = text
      .replaceAll(`"${old}"`, `"${id}"`)
      .replaceAll(`>${old}<`, `>${id}<`)
      .replaceAll(`>${old.replaceAll('/', '.')}<`, `>${id}<`);
  }
  return text;
}

/** In prose only what is quoted is an id for certain. */
function renamedBody(body: string): string {
  let text = body;
  for (const [old, id] of RENAMES)
    text = text.replaceAll(`"${old}"`, `"${id}"`).replaceAll(`\`${old}\``, `\`${id}\``);
  return text;
}

function fixTool(
  { id, extension }: Pick<TreeFile, 'id' | 'extension'>,
  text: string,
  fault: Fault | undefined,
): string {
  const category = categoryOf(id);
  let next = text;
  if (extension === '.yaml' || extension === '.yml') {
    next = fixCategory(next, id);
  } else {
    next = next.replace(
      /^((?:export\s+)?(?:const\s+|let\s+|var\s+)?__category__\s*(?::[^=\n]*)?=\s*)(["'])[^"'\n]*\2/m,
      (_all, head: string, quote: string) => `${head}${quote}${category}${quote}`,
    );
  }
  if (extension !== '.py') return next;
  next = next.replaceAll(/^([ \t]*)from rye\.constants import AI_DIR[ \t]*$/gm, '$1AI_DIR = ".ai"');
  if (fault?.message.includes('relative to a package') === true) next = withoutPackage(next);
  const pin = /__files__ = \{(".+?": "[0-9a-f]{64}")\}/.exec(fault?.hint ?? '')?.[1];
  if (fault?.code !== 'tool_unsupported' || pin === undefined) return next;
  if (/^__files__ = \{/m.test(next))
    return next.replace(/^__files__ = \{/m, `__files__ = {${pin}, `);
  return next.replace(
    /^(__(?:version|tool_description|executor_id|tool_type)__)/m,
    `__files__ = {${pin}}\n$1`,
  );
}

/** Imports what lies beside a tool as a module: a tool is in no package. The next round pins it. */
function withoutPackage(text: string): string {
  return text
    .replaceAll(/^([ \t]*)from \.([A-Za-z_]\w*) import /gm, '$1from $2 import ')
    .replaceAll(/^([ \t]*)from \. import (?=[A-Za-z_])/gm, '$1import ');
}

function fixCategory(text: string, id: string): string {
  const category = categoryOf(id);
  return text.replace(/^category:[^\n]*$/m, (line) => {
    const value = line
      .slice('category:'.length)
      .trim()
      .replace(/^(["'])(.*)\1$/, '$2');
    return value === category ? line : `category: ${category === '' ? '""' : category}`;
  });
}
