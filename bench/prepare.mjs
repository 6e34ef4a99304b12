// Measures a warm prepare: extends three deep, hooks in five layers, twenty tools. Target: 15 ms. On a busy machine the
// processor time is the meaningful figure.
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { openRye } from '../dist/index.js';
import { cpuSince, median, ms, openWorkspace, range, row, verdict } from './harness.mjs';

const FIXTURE = fileURLToPath(new URL('../test/fixtures/spaces/three-deep', import.meta.url));
const ROUNDS = 40;
const TOOLS = 20;
const TARGET_MS = 15;

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
        `const __version__ = '1.0.0';\nconst __tool_description__ = 'Tool ${at}.';\nconst __traits__ = { risk: 'safe' };\nconst CONFIG_SCHEMA = { type: 'object', properties: { a: { type: 'string' } } };\nconsole.log(JSON.stringify({ success: true }));\n`,
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
    const samples = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const started = performance.now();
      const cpu = process.cpuUsage();
      await rye.threads.plan({ directiveId: 'team/wide', inputs: { path: '.' } });
      samples.push({ wall: performance.now() - started, cpu: cpuSince(cpu) });
    }
    rye.close();
    const warm = samples.slice(ROUNDS / 2);
    row('prepare, 4 files deep, 5 layers, 20 tools', 'first', 'warm median', 'min–max', 'target');
    for (const clock of ['wall', 'cpu']) {
      const times = warm.map((sample) => sample[clock]);
      row(
        `  rye.threads.plan, ${clock}`,
        ms(samples[0][clock]),
        ms(median(times)),
        range(times, ms),
        verdict(median(times), TARGET_MS, ms),
      );
    }
  } finally {
    workspace.close();
  }
}
