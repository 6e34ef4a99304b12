// Renders what project_report found as Markdown. The same facts give the same text, so that a second report on an
// unchanged project changes nothing.
import { readFileSync } from 'node:fs';

const __version__ = '1.0.0';
const __tool_description__ = 'Render a project survey, the search for open markers and a file excerpt as a Markdown report.';
const __traits__ = { reads_only: true, idempotent: true, network: false, timeout_seconds: 30, risk: 'safe' };
const CONFIG_SCHEMA = {
  type: 'object',
  properties: {
    survey: { type: 'object', description: 'Result of rye/core/survey.' },
    found: { type: 'integer', description: 'Number of files that glob found.' },
    markers: { type: 'object', description: 'Result of grep for TODO and FIXME.' },
    lead: { type: 'object', description: 'Result of reading the file to read first.' },
    report: { type: 'string', description: 'Path of the report; markers in it are not counted.' },
  },
  required: ['survey', 'found', 'markers', 'lead', 'report'],
  additionalProperties: false,
};

const SHOWN_MARKERS = 50;

const { survey, found, markers, lead, report } = JSON.parse(readFileSync(0, 'utf8'));
const inSurvey = survey.path === '.' ? '' : `${survey.path}/`;
const leftOut = survey.left_out.map(({ folder }) => `${inSurvey}${folder}/`);
const open = markers.matches.filter(
  ({ path }) => path !== report && !leftOut.some((folder) => path.startsWith(folder)),
);
const todos = `${markers.truncated ? 'at least ' : ''}${open.length}`;

const unreadable = survey.unreadable_files === 0 ? '' : `, ${survey.unreadable_files} that cannot be read`;

const parts = [
  `# Project report: ${code(survey.path)}`,
  `${count(survey.files, 'file')}: ${survey.text_files} of text with ${count(survey.lines, 'line')}, ${survey.binary_files} binary${unreadable}; ${count(survey.bytes, 'byte')} in all. ` +
    `${todos} ${open.length === 1 ? 'line' : 'lines'} with an open marker (TODO or FIXME).`,
  '## By extension',
  table(
    ['Extension', 'Files', 'Lines', 'Bytes'],
    survey.by_extension.map((row) => [code(row.extension), row.files, row.lines, row.bytes]),
  ),
  '## Largest files',
  table(
    ['File', 'Bytes', 'Lines'],
    survey.largest.map((file) => [code(file.path), file.bytes, file.lines]),
  ),
  '## Open markers',
  open.length === 0
    ? 'None.'
    : table(
        ['Where', 'Line'],
        open.slice(0, SHOWN_MARKERS).map(({ path, line, text }) => [code(`${path}:${line}`), code(text.trim())]),
      ),
  open.length > SHOWN_MARKERS ? `The first ${SHOWN_MARKERS} of ${todos}.` : '',
  `## Read first: ${code(lead.path)}`,
  fence(lead.content),
  '## How this was counted',
  howCounted(),
];
process.stdout.write(
  JSON.stringify({ markdown: `${parts.filter((part) => part !== '').join('\n\n')}\n`, todo_count: open.length }),
);

function howCounted() {
  const folders = survey.left_out.map(({ folder, files }) => `${code(`${folder}/`)} (${count(files, 'file')})`);
  return [
    '- Regular files only; symbolic links are not followed. Hidden names at the top of the folder, `.git` and `node_modules` are not part of it.',
    ...(folders.length === 0 ? [] : [`- Skipped, because .gitignore names them: ${folders.join(', ')}.`]),
    '- A line is a line feed, as `wc -l` counts. A file with a NUL byte is binary and has no lines.',
    '- Markers are lines that `grep -wE "TODO|FIXME"` finds in files of text.',
    `- The search by pattern found ${count(found, 'file')}, including skipped ones.`,
  ].join('\n');
}

function table(head, rows) {
  const lines = [head, head.map((_, column) => (typeof rows[0]?.[column] === 'number' ? '--:' : '---')), ...rows];
  return lines.map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

// Text of a file or a file name as inline code of one line, which neither a backtick nor a bar can leave.
function code(text) {
  const line = text.replaceAll(/\s+/g, ' ').replaceAll(/[\u0000-\u001f\u007f]/g, '\u{fffd}').replaceAll('|', '\\|');
  const longest = Math.max(0, ...[...line.matchAll(/`+/g)].map(([run]) => run.length));
  const ticks = '`'.repeat(longest + 1);
  return longest === 0 ? `${ticks}${line}${ticks}` : `${ticks} ${line} ${ticks}`;
}

function count(total, noun) {
  return `${total} ${noun}${total === 1 ? '' : 's'}`;
}

function fence(text) {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const ticks = '`'.repeat(longest + 1);
  return `${ticks}text\n${text}\n${ticks}`;
}
