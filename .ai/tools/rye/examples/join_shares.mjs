// Joins what the children of a fan-out returned into one Markdown report; a failed child has a separate line.
export const __version__ = '1.0.0';
export const __tool_description__ = 'Join the results of child threads into one Markdown report.';
export const __traits__ = { reads_only: true, idempotent: true, network: false, timeout_seconds: 10, risk: 'safe' };
export const CONFIG_SCHEMA = {
  type: 'object',
  properties: {
    title: { type: 'string', description: 'Heading of the report.' },
    results: {
      type: 'array',
      description: 'Results as aggregate_results gives them.',
      items: { type: 'object' },
    },
  },
  required: ['title', 'results'],
  additionalProperties: false,
};

/** Text of others inside a Markdown table cell. */
function cell(value) {
  return String(value ?? '').replaceAll(/[\r\n|]+/g, ' ').slice(0, 500);
}

let text = '';
process.stdin.setEncoding('utf8');
process.stdin.on('data', (chunk) => {
  text += chunk;
});
process.stdin.on('end', () => {
  const { title, results } = JSON.parse(text);
  const done = results.filter(({ status, outputs }) => status === 'completed' && outputs);
  const failed = results.filter((result) => !done.includes(result));
  const sum = (name) => done.reduce((total, { outputs }) => total + Number(outputs[name] ?? 0), 0);
  const lines = [
    `# ${title}`,
    '',
    `${sum('files')} files, ${sum('lines')} lines, ${sum('words')} words in ${done.length} of ${results.length} shares.`,
    '',
    '| share | files | lines | words |',
    '| --- | --- | --- | --- |',
    ...done.map(({ outputs }) => `| ${['share', 'files', 'lines', 'words'].map((name) => cell(outputs[name])).join(' | ')} |`),
    ...failed.map(({ thread_id, status, error }) => `\nNot counted: ${cell(thread_id)} ended as ${cell(status)}: ${cell(error?.message)}`),
    '',
  ];
  const totals = { files: sum('files'), lines: sum('lines'), words: sum('words') };
  const report = { ...totals, completed: done.length, failed: failed.length, markdown: lines.join('\n') };
  process.stdout.write(`${JSON.stringify(report)}\n`);
});
