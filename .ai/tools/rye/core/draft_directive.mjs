// Drafts the text of a new directive from an id, a description and instructions. It writes nothing: saving and signing
// are separate steps.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const __version__ = '1.0.0';
const __tool_description__ = 'Draft the file of a new directive; returns its path and content.';
const __traits__ = { reads_only: true, idempotent: true, network: false, timeout_seconds: 10, risk: 'safe' };
const CONFIG_SCHEMA = {
  type: 'object',
  properties: {
    id: {
      type: 'string',
      pattern: '^([A-Za-z0-9_-]+/)*[a-z][a-z0-9_-]*$',
      maxLength: 200,
      description: 'Id of the directive, such as reports/weekly.',
    },
    description: { type: 'string', minLength: 1, description: 'What the directive does, in one sentence.' },
    instructions: { type: 'string', minLength: 1, description: 'What the model is to do.' },
    tools: { type: 'array', items: { type: 'string' }, description: 'Ids of the tools that it may use.' },
    author: { type: 'string', minLength: 1 },
  },
  required: ['id', 'description', 'instructions', 'tools', 'author'],
  additionalProperties: false,
};

const { id, description, instructions, tools, author } = JSON.parse(readFileSync(0, 'utf8'));
const path = `.ai/directives/${id}.md`;
const slash = id.lastIndexOf('/');
const name = id.slice(slash + 1);
const category = id.slice(0, Math.max(0, slash));
const grants = tools.map((tool) => `      <execute><tool>${escape(tool.trim())}</tool></execute>`);
const permissions = grants.length === 0 ? [] : ['    <permissions>', ...grants, '    </permissions>'];

if (existsSync(join(process.cwd(), path))) {
  process.stderr.write(`${path} exists already; choose another id or edit it\n`);
  process.exit(1);
}

const content = [
  `# ${description.replaceAll(/\s+/g, ' ').trim()}`,
  '',
  '```xml',
  `<directive name="${name}" version="1.0.0">`,
  '  <metadata>',
  `    <description>${escape(description)}</description>`,
  `    <category>${category}</category>`,
  `    <author>${escape(author)}</author>`,
  '    <limits turns="10" spend="0.25" />',
  ...permissions,
  '  </metadata>',
  '  <outputs>',
  '    <output name="summary" type="string" required="true">What was done and what came of it.</output>',
  '  </outputs>',
  '</directive>',
  '```',
  '',
  instructions.trim(),
  '',
].join('\n');
process.stdout.write(JSON.stringify({ id, path, content }));

function escape(text) {
  return text
    .replaceAll(/[\u0000-\u001f]+/g, ' ')
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;');
}
