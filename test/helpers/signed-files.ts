import { type SigningKey, sha256Hex } from '../../src/kernel/trust/keys.ts';
import type { SignedSubject } from '../../src/kernel/trust/signature-line.ts';

const KINDS: Readonly<Record<string, string>> = {
  directives: 'directive',
  tools: 'tool',
  knowledge: 'knowledge',
  rules: 'rule',
  skills: 'skill',
  config: 'config',
};

/** Returns the subject under which `rye sign` signs the file at this path below `.ai`. */
export function subjectOfPath(path: string): SignedSubject {
  const [folder = '', ...rest] = path.replace(/^~\/(?:\.ai\/)?/, '').split('/');
  const name = rest.join('/');
  const extension = name.slice(name.lastIndexOf('.'));
  const kind = KINDS[folder] ?? 'directive';
  if (kind === 'skill') return { kind, id: name.slice(0, name.lastIndexOf('/')) };
  const id = name === '' ? 'none' : name.slice(0, -extension.length);
  return { kind: kind === 'tool' ? `tool${extension}` : kind, id };
}

/** A text signed as rye did it before signatures named what they sign. */
export function signedOlder(
  text: string,
  key: SigningKey,
  comment: readonly [string, string],
): string {
  const [open, close] = comment;
  const shebang = text.startsWith('#!') ? text.slice(0, text.indexOf('\n') + 1) : '';
  const content = text.slice(shebang.length);
  const hash = sha256Hex(content);
  const line = `rye:signed:2026-01-02T03:04:05Z:${hash}:${key.sign(hash)}:${key.keyId}`;
  return `${shebang}${open}${line}${close}\n${content}`;
}
