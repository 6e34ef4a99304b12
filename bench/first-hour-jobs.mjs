// Ten jobs, each with what it took before (a review in November 2026) and how a person does it now.
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import process from 'node:process';
import { Person } from './first-hour-person.mjs';
import { RYE } from './harness.mjs';

const FILES = 20;
const INPUTS =
  '  <inputs>\n    <input name="topic" type="string" required="true">The subject of the work.</input>\n  </inputs>\n';
const OUTPUTS =
  '  <outputs>\n    <output name="summary" type="string" required="true">What was found.</output>\n  </outputs>\n';
const GRANT = '      <execute><tool>rye/file-system/read</tool></execute>\n';
const TASK =
  'Tell the model here what to do about {input:topic}, and what to return as the output `summary`.';
const SCHEMA = `{
  "type": "object",
  "properties": {
    "verdict": { "enum": ["approve", "request_changes"] },
    "findings": { "type": "array", "items": { "type": "object", "required": ["file", "message"] } }
  },
  "required": ["verdict", "findings"]
}
`;

function expect(value, what) {
  if (!value) throw new Error(what);
}

const json = ({ stdout }) => JSON.parse(stdout);

/** A folder under git with a changelog; `rye init` once. */
function begin(person) {
  person.prepare(
    `git init -q -b main . && git config user.email a@b.c && git config user.name Ada && mkdir src \\
     && printf '# Changes\\n- fix\\n- fix\\n- a quoll\\n' > CHANGELOG.md && echo 'const a = 1' > src/a.js && git add . \\
     && git commit -qm first && '${process.execPath}' '${RYE}' init`,
  );
}

function nightly(person) {
  begin(person);
  person.directive('reports/nightly', [
    [INPUTS, ''],
    [
      'What was found.</output>\n',
      'What changed.</output>\n    <output name="open" type="integer" />\n',
    ],
    [TASK, 'NIGHTLY: read CHANGELOG.md and report what changed.'],
  ]);
  person.rye(['sign', 'directive', 'reports/nightly']);
  person.shell('openssl genpkey -algorithm ed25519 -out ../job.pem');
  const { stdout: trusted } = person.rye(['keys', 'export']);
  const env = {
    HOME: '/nonexistent',
    RYE_SIGNING_KEY: readFileSync(path.join(person.folder, 'job.pem'), 'utf8'),
    RYE_TRUSTED_KEYS: trusted,
  };
  const args = ['run', 'reports/nightly', '--limit', 'spend=0.20', '--json', '--junit', 'run.xml'];
  const result = json(person.rye(args, { env }));
  expect(result.outputs.open === 2 && result.warnings.length === 0, 'no report');
  expect(existsSync(path.join(person.project, 'run.xml')), 'no JUnit file');
}

function review(person) {
  begin(person);
  person.prepare("echo 'const b = 2' >> src/a.js");
  person.write('schema.json', SCHEMA);
  const command = `git diff | "${process.execPath}" "${RYE}" ask "REVIEW this diff." --schema schema.json`;
  const { verdict, findings } = json(person.shell(command));
  expect(verdict === 'request_changes' && findings.length === 1, 'no review');
}

function fanOut(person) {
  begin(person);
  person.directive('team/summarize', [
    ['name="topic"', 'name="file"'],
    [TASK, 'SUMMARY of {input:file}, in one line.'],
  ]);
  person.directive('team/all', [
    ['    <limits', '    <model provider="literal" />\n    <limits'],
    ['spend="0.25"', 'spend="2"'],
    [
      '</directive>',
      `  <process>
    <foreach item="f" in="\${inputs.files}" parallel="5">
      <step name="one">
        <execute item_type="directive" item_id="team/summarize"><param name="file">\${f}</param></execute>
      </step>
    </foreach>
  </process>
</directive>`,
    ],
    [GRANT, `${GRANT}      <execute><directive>team/summarize</directive></execute>\n`],
    ['name="topic" type="string"', 'name="files" type="array"'],
    [
      'name="summary" type="string" required="true"',
      'name="all" type="array" from="${steps.one.results}"',
    ],
    [TASK, 'Summarize all files.'],
  ]);
  person.rye(['sign', 'directive', 'team/*']);
  const files = Array.from({ length: FILES }, (_, at) => `docs/${at}.md`);
  const result = json(
    person.rye(['run', 'team/all', '--inputs', JSON.stringify({ files }), '--json']),
  );
  expect(result.outputs.all.length === FILES, 'not every file has a result');
  expect(result.outputs.all[7].outputs.summary.includes(files[7]), 'the results are out of order');
  expect(
    result.cost.total.turns >= FILES && result.cost.own.spend === 0,
    'the costs are not summed up',
  );
}

function budget(person) {
  begin(person);
  person.prepare(`'${process.execPath}' '${RYE}' new directive costly`);
  const file = path.join(person.project, '.ai/directives/costly.md');
  const text = readFileSync(file, 'utf8').replace(TASK, 'COSTLY work.').replace(INPUTS, '');
  const { lines } = person;
  person.write('.ai/directives/costly.md', text);
  person.lines = lines;
  person.prepare(`'${process.execPath}' '${RYE}' sign directive costly`);
  const result = json(
    person.rye(['run', 'costly', '--max-budget-usd', '0.02', '--json'], { code: 5 }),
  );
  expect(
    result.error.code === 'limit_spend' && result.cost.spend <= 0.02,
    'the budget was not kept',
  );
}

function approval(person) {
  begin(person);
  person.directive('deploy', [
    [INPUTS, ''],
    [OUTPUTS, ''],
    [
      GRANT,
      '      <execute><tool ask="true">rye/bash</tool></execute>\n      <acknowledge risk="elevated">It deploys.</acknowledge>\n',
    ],
    [TASK, 'DEPLOY the service.'],
  ]);
  person.rye(['sign', 'directive', 'deploy']);
  const { thread_id: thread } = json(person.rye(['run', 'deploy', '--json'], { code: 8 }));
  const deployed = path.join(person.project, 'deployed.txt');
  expect(!existsSync(deployed), 'the command ran without an approval');
  const { stdout } = person.rye(['approvals']);
  person.rye(['approve', /apr-\w+/.exec(stdout)?.[0] ?? 'none', '--no-resume']);
  expect(
    json(person.rye(['threads', 'resume', thread, '--json'])).result === 'Deployed.',
    'not resumed',
  );
  expect(existsSync(deployed), 'the approved command did not run');
}

async function interrupted(person) {
  begin(person);
  longWork(person);
  const { code, printed } = await person.interrupt(['run', 'long'], {
    signal: 'SIGINT',
    mark: '✓',
  });
  expect(
    code === 130 && printed.includes('resume: rye threads resume'),
    `exit ${code}\n${printed}`,
  );
  const { stdout } = person.rye(['run', '--continue']);
  expect(stdout.includes('Finished the long work.'), 'not continued');
  const { total } = json(person.rye(['threads', '--json']));
  person.commands -= 1;
  expect(total === 1, 'the continuation is another thread');
}

function longWork(person) {
  person.prepare(`'${process.execPath}' '${RYE}' new directive long`);
  const file = path.join(person.project, '.ai/directives/long.md');
  const text = readFileSync(file, 'utf8')
    .replace(INPUTS, '')
    .replace(OUTPUTS, '')
    .replace('file-system/read', 'file-system/ls')
    .replace(TASK, 'LONG work.');
  const { lines } = person;
  person.write('.ai/directives/long.md', text);
  person.lines = lines;
  person.prepare(`'${process.execPath}' '${RYE}' sign directive long`);
}

function search(person) {
  begin(person);
  person.prepare(
    `'${process.execPath}' '${RYE}' execute directive rye/core/project_report --quiet >/dev/null`,
  );
  const { stdout } = person.rye(['search', 'quoll OR CHANGELOG']);
  expect(stdout.includes('agent/threads/'), 'no thread was found');
}

function serverAndSkill(person) {
  begin(person);
  const server = createRequire(import.meta.url).resolve(
    '@modelcontextprotocol/server-filesystem/dist/index.js',
  );
  person.prepare('mkdir notes && echo one > notes/one.md');
  person.rye(['new', 'skill', 'tables']);
  person.write(
    '.ai/skills/tables/SKILL.md',
    '---\nname: tables\ndescription: Draws tables.\n---\n\nUse Markdown.\n',
  );
  person.write(
    '.ai/config/mcp.yaml',
    `servers:\n  files:\n    command: ${process.execPath}\n    args: [${server}, ./notes]\n`,
  );
  person.directive('notes', [
    [INPUTS, ''],
    [OUTPUTS, ''],
    [
      GRANT,
      '      <execute><tool>mcp/files/*</tool></execute>\n      <fetch><skill>tables</skill></fetch>\n      <acknowledge risk="elevated">Reads notes.</acknowledge>\n',
    ],
    [TASK, 'List the NOTES.'],
  ]);
  person.rye(['sign', '.ai/directives/notes.md']);
  const refused = person.rye(['run', 'notes'], { code: 4 });
  expect(refused.stderr.includes('rye sign'), 'the refusal does not name the next command');
  for (const item of ['.ai/skills/tables/SKILL.md', '.ai/config/mcp.yaml']) {
    person.rye(['sign', item]);
  }
  const { stdout } = person.rye(['run', 'notes']);
  expect(stdout.includes('The folder has one note.'), 'the server was not used');
}

function team(ada) {
  begin(ada);
  ada.prepare('git init -q --bare ../hub.git && git remote add origin ../hub.git');
  ada.write('.ai/config/trust.yaml', 'signing: detached\n');
  ada.rye(['sign', 'config', 'trust']);
  ada.directive('review', [[INPUTS, '']]);
  ada.rye(['sign', 'directive', 'review']);
  ada.shell('git add . && git commit -qm team && git push -q origin main');
  const { stdout: key } = ada.rye(['keys', 'export']);
  const bob = new Person(ada.folder, { url: ada.url, name: 'bob' });
  bob.shell(
    'git clone -q -b main ../hub.git . && git config user.email b@b.c && git config user.name Bob',
  );
  bob.rye(['keys', 'trust', '-', '--owner', 'ada', '--yes'], { stdin: key });
  bob.rye(['keys', 'init']);
  bob.rye(['verify', '.ai/directives/review.md']);
  const file = '.ai/directives/review.md';
  for (const [person, edit] of [
    [ada, (text) => text.replace('Describe the directive in one sentence.', 'Review a change.')],
    [bob, (text) => `${text}\nBe brief.\n`],
  ]) {
    person.write(file, edit(readFileSync(path.join(person.project, file), 'utf8')));
    person.rye(['sign', file]);
    person.shell('git add . && git commit -qm edit');
  }
  ada.shell('git push -q origin main');
  // both edits merge; the merged text is new, so it needs a signature
  bob.shell('git pull -q --no-rebase --no-edit origin main');
  const merged = readFileSync(path.join(bob.project, file), 'utf8');
  expect(merged.includes('Review a change.') && merged.includes('Be brief.'), 'an edit was lost');
  bob.rye(['sign', file]);
  bob.rye(['verify', file]);
  ada.commands += bob.commands;
  ada.lines += bob.lines;
  ada.seconds += bob.seconds;
}

function watch(person) {
  begin(person);
  longWork(person);
  const { thread_id: thread } = json(person.rye(['run', 'long', '--async']));
  const log = person.rye(['threads', 'logs', '@', '--follow']);
  expect(log.stdout.includes('thread_completed'), 'the log does not follow the thread to its end');
  const { stdout } = person.rye(['attach', thread]);
  expect(stdout.includes('Finished the long work.'), 'attach does not print the answer');
}

/** `before` is the finding of the review: works or not, lines, commands. */
export const JOBS = [
  { name: 'nightly report in CI', before: 'yes: 20–30 lines, 5 steps', work: nightly },
  { name: 'review with a schema', before: 'half: 22 lines, 3 commands', work: review },
  { name: 'fan-out over 20 files', before: 'yes: 45 lines', work: fanOut },
  { name: 'cap the spend', before: 'yes: 1 option', work: budget },
  { name: 'approve a call', before: 'no', work: approval },
  { name: 'resume the next day', before: 'yes: 1 command, another ID', work: interrupted },
  { name: 'search past threads', before: 'yes: 1 command', work: search },
  {
    name: 'MCP server and skill',
    before: 'fails open: 3 files, 3 signatures',
    work: serverAndSkill,
  },
  { name: 'two people, one directive', before: 'conflict in git', work: team },
  { name: 'watch a running thread', before: 'half: logs -f fails', work: watch },
];
