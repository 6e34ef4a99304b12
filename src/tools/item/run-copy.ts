import { existsSync } from 'node:fs';
import { extname } from 'node:path';
import { RyeError } from '../../core/errors.ts';

/**
 * The bytes that an interpreter gets: exactly what the signature covers. The line of a shebang, which it does not
 * cover, becomes an empty one, for interpreters take switches, encodings and even other interpreters from it; and
 * ends of line are LF, as they were hashed, for a CR added to a line of a shell script changes what it does.
 */
export function coveredText(content: string | Uint8Array): string {
  const text = typeof content === 'string' ? content : Buffer.from(content).toString('utf8');
  const lines = text.replaceAll('\r\n', '\n');
  if (!lines.startsWith('#!')) return lines;
  const end = lines.indexOf('\n');
  return end === -1 ? '' : lines.slice(end);
}

/** The shell of shell tools; which one a script asks for is not signed, and bash runs what sh runs. */
export function shellOf(path: string): string {
  if (existsSync('/bin/bash')) return '/bin/bash';
  return extname(path) === '.bash' ? 'bash' : 'sh';
}

const INTERPRETERS: Readonly<Record<string, string>> = { '.rb': 'ruby', '.pl': 'perl' };

/** The interpreter that an extension stands for; nothing is ever run through its own shebang. */
export function interpreterOf(id: string, path: string): string {
  const extension = extname(path).toLowerCase();
  const interpreter = Object.hasOwn(INTERPRETERS, extension) ? INTERPRETERS[extension] : undefined;
  if (interpreter !== undefined) return interpreter;
  throw new RyeError('tool_malformed', `no interpreter is known for ${id}`, {
    location: { path },
    hint: 'Describe it in a YAML manifest with a command, or write it in JavaScript, Python, shell, Ruby or Perl.',
  });
}
