// Prepare, warm: three-deep extends, hooks in five layers, twenty tools. Target: 15 ms.
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { openRye } from '../dist/index.js';
import { median, ms, openWorkspace, row } from './harness.mjs';

const FIXTURE = fileURLToPath(new URL('../test/fixtures/spaces/three-deep', import.meta.url));
const ROUNDS = 40;
const TOOLS = 20;

export async function run() {
  const workspace = openWorkspace();
  try {
    cpSync(path.join(FIXTURE, 'project'), workspace.project, { recursive: true });
    cpSync(path.join(FIXTURE, 'user'), workspace.env.HOME, { recursive: true });
    const tools = path.join(workspace.project, '.ai', 'tools', 'team');
    mkdirSync(tools, { recursive: true });
    for (let at = 0; at < TOOLS; at += 1) {
      writeFileSync(
        path.join(tools, `tool${at}.js`),
        `const __version__ = '1.0.0';\nconst __tool_description__ = 'Tool ${at}.';\nconst __traits__ = { risk: 'safe' };\nconst CONFIG_SCHEMA = { type: 'object', properties: { a: { type: 'string' } } };\n`,
      );
    }
    const leaf = path.join(workspace.project, '.ai', 'directives', 'team', 'wide.md');
    writeFileSync(
      leaf,
      '```xml\n<directive name="wide" version="1.0.0" extends="team/leaf"><metadata><description>Wide.</description><category>team</category><author>b</author><permissions><execute><tool>team/tool*</tool></execute><acknowledge risk="elevated">benchmark</acknowledge></permissions></metadata></directive>\n```\n\nBody.\n',
    );
    for (const type of ['directive', 'tool', 'knowledge']) workspace.rye('sign', type, '*');
    workspace.rye('sign', 'config', 'agent/hooks');
    const rye = openRye({
      projectPath: workspace.project,
      userSpacePath: workspace.env.HOME,
      env: { PATH: process.env.PATH },
    });
    const times = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const started = performance.now();
      await rye.threads.plan({ directiveId: 'team/wide', inputs: { path: '.' } });
      times.push(performance.now() - started);
    }
    rye.close();
    row('prepare, 4 files deep, 5 layers, 20 tools', 'first', 'warm median');
    row('  rye.threads.plan', ms(times[0]), ms(median(times.slice(ROUNDS / 2))));
  } finally {
    workspace.close();
  }
}
