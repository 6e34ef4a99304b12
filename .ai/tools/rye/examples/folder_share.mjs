// Counts the files, lines and words in one share of a folder. A file that is not UTF-8 text makes the share fail.
import { readdirSync, readFileSync, realpathSync } from 'node:fs';
import { join, relative, sep } from 'node:path';

export const __version__ = '1.0.0';
export const __tool_description__ = 'Count files, lines and words in one of several shares of a folder.';
export const __traits__ = { reads_only: true, idempotent: true, network: false, timeout_seconds: 60, risk: 'safe' };
export const CONFIG_SCHEMA = {
  type: 'object',
  properties: {
    path: { type: 'string', description: 'Folder, relative to the project.' },
    share: { type: 'integer', minimum: 1, description: 'Which share, from 1.' },
    of: { type: 'integer', minimum: 1, description: 'Number of shares.' },
  },
  required: ['path', 'share', 'of'],
  additionalProperties: false,
};

/** Paths of the regular files below `folder` that are not hidden, sorted, so that every share cuts the same list. */
function filesBelow(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .filter((file) => !file.slice(folder.length).split(/[/\\]/).some((part) => part.startsWith('.')))
    .sort();
}

let text = '';
process.stdin.setEncoding('utf8');
process.stdin.on('data', (chunk) => {
  text += chunk;
});
process.stdin.on('end', () => {
  const { path, share, of } = JSON.parse(text);
  const project = realpathSync(process.cwd());
  const folder = realpathSync(join(project, path));
  const inside = relative(project, folder);
  if (inside === '..' || inside.startsWith(`..${sep}`)) {
    process.stderr.write(`${JSON.stringify(path)} leads outside the project\n`);
    process.exit(1);
  }
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const totals = { share, files: 0, lines: 0, words: 0 };
  for (const [index, file] of filesBelow(folder).entries()) {
    if (index % of !== share - 1) continue;
    let content;
    try {
      content = decoder.decode(readFileSync(file));
    } catch {
      process.stderr.write(`${file.slice(folder.length + 1)} is not UTF-8 text\n`);
      process.exit(1);
    }
    totals.files += 1;
    totals.lines += content === '' ? 0 : content.split('\n').length - (content.endsWith('\n') ? 1 : 0);
    totals.words += content.split(/\s+/).filter((word) => word !== '').length;
  }
  process.stdout.write(`${JSON.stringify(totals)}\n`);
});
