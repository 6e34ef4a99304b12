import type { OutputDeclaration } from '../core/plan.ts';
import { escapeXml } from '../core/text.ts';

export interface PromptParts {
  readonly name: string;
  readonly description: string;
  /** The `<permissions>` element as written; empty when there is none. */
  readonly permissionsXml: string;
  /** Interpolated body. */
  readonly body: string;
  readonly outputs: readonly OutputDeclaration[];
}

/**
 * The `<directive …>` text of the first user message: description, permissions as written, body, and for a
 * directive with outputs how to return them. Parts are joined by single line ends.
 */
export function renderPrompt({
  name,
  description,
  permissionsXml,
  body,
  outputs,
}: PromptParts): string {
  return [
    `<directive name="${escapeXml(name)}">`,
    `<description>${escapeText(description)}</description>`,
    permissionsXml,
    body.trim(),
    outputs.length === 0 ? '' : returnInstruction(outputs),
    '</directive>',
  ]
    .filter((part) => part !== '')
    .join('\n');
}

function returnInstruction(outputs: readonly OutputDeclaration[]): string {
  const fields = outputs.map(
    (output) => `  ${JSON.stringify(output.name)}: "<${fieldText(output)}>"`,
  );
  return [
    'When you have completed all steps, call the `rye_directive_return` tool, through the tool API and not as text, with these fields:',
    `{\n${fields.join(',\n')}\n}`,
    'If you are blocked and cannot finish, call it with "status": "error" and say why in "error_detail".',
  ].join('\n');
}

function fieldText({ description, name, type, required }: OutputDeclaration): string {
  return `${description === '' ? name : description} (${type})${required ? ' [required]' : ''}`;
}

function escapeText(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
