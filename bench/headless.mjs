// One headless turn as a process, on each Node that users have, with and without a configuration file of the project, and on a machine
// that has kept nothing; beside `node -e 0`, a bare client that asks twice, and pi, which does the same turn.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  interleave,
  measureProcess,
  median,
  mib,
  openWorkspace,
  peakMemory,
  processRow,
  RYE,
  range,
  row,
  startServer,
  TURN_DIRECTIVE,
  verdict,
} from './harness.mjs';
import { installNodes } from './install.mjs';

const ROUNDS = 11;
/** Over `node -e 0` of the same version. */
const TARGETS = { plain: 7, yaml: 7.3 };
const TARGET_MIB = 75;
const BARE = fileURLToPath(new URL('bare-client.mjs', import.meta.url));
const PI_HOME = new URL('../node_modules/@mariozechner/pi-coding-agent/', import.meta.url);
const PI = fileURLToPath(new URL('dist/cli.js', PI_HOME));
/** A file as any project may have: lists, quotes, nested mappings in braces. */
const PROVIDER = `# A gateway of this company.
kind: openai
base_url: "http://127.0.0.1:9/v1"
models:
  company-small:
    context_window: 100000
    max_output_tokens: 1000
    pricing: { input: 1, output: 2 }
    capabilities: [tools]
tiers: { fast: company-small, general: company-small, high: company-small, max: company-small }
`;

function openProject(url) {
  const workspace = openWorkspace();
  const { env, project, rye } = workspace;
  mkdirSync(path.join(project, '.ai', 'directives'), { recursive: true });
  writeFileSync(path.join(project, '.ai', 'directives', 'turn.md'), TURN_DIRECTIVE);
  rye('sign', 'directive', 'turn');
  const options = {
    cwd: project,
    env: { ...env, ANTHROPIC_API_KEY: 'bench', ANTHROPIC_BASE_URL: url },
  };
  return { ...workspace, options, turn: [RYE, 'run', 'turn', '-q'] };
}

export async function run() {
  const server = await startServer('./wire.mjs');
  const { nodes, remove } = installNodes(['22', '24']);
  const plain = openProject(server.url);
  const configured = openProject(server.url);
  const providers = path.join(configured.project, '.ai', 'config', 'agent', 'providers');
  try {
    mkdirSync(providers, { recursive: true });
    writeFileSync(path.join(providers, 'company.yaml'), PROVIDER);
    configured.rye('sign', 'config', 'agent/providers/company');
    for (const [name, node] of Object.entries(nodes)) await onNode(name, node, plain, configured);
    await besides(plain, server.url);
    await memory(plain);
  } finally {
    remove();
    server.close();
    plain.close();
    configured.close();
  }
}

async function onNode(name, node, plain, configured) {
  const of = ({ turn, options }) => measureProcess(turn, { ...options, node });
  const fresh = () => {
    rmSync(path.join(plain.env.HOME, '.cache'), { recursive: true, force: true });
    return of(plain);
  };
  for (const workspace of [plain, configured]) of(workspace);
  const samples = await interleave(
    {
      'node -e 0': () => measureProcess(['-e', '0'], { ...plain.options, node }),
      'rye run': () => of(plain),
      'rye run, a YAML file in the project': () => of(configured),
    },
    ROUNDS,
  );
  samples['rye run, nothing kept yet'] = Array.from({ length: ROUNDS }, fresh);
  const floors = samples['node -e 0'];
  row(`one headless turn, ${name}`, 'wall', 'over node, wall', 'over node, CPU', 'target, CPU');
  for (const [label, taken] of Object.entries(samples)) {
    const target = label === 'rye run' ? TARGETS.plain : TARGETS.yaml;
    const isBound = taken !== floors && !label.endsWith('yet');
    processRow(label, { samples: taken, floors, ...(isBound && { target }) });
  }
}

/** Peers on the Node that runs this. */
async function besides({ options, env, project, turn }, url) {
  const models = path.join(env.HOME, '.pi', 'agent', 'models.json');
  mkdirSync(path.dirname(models), { recursive: true });
  const model = { id: 'bench', name: 'bench', contextWindow: 100_000, maxTokens: 1000 };
  const provider = { baseUrl: url, apiKey: 'bench', api: 'anthropic-messages', models: [model] };
  writeFileSync(models, JSON.stringify({ providers: { bench: provider } }));
  const { version } = JSON.parse(readFileSync(new URL('package.json', PI_HOME), 'utf8'));
  const words = ['--provider', 'bench', '--model', 'bench', '-p', 'Answer in one word.'];
  const peer = { cwd: project, env: { ...env, PI_OFFLINE: '1', PI_SKIP_VERSION_CHECK: '1' } };
  const samples = await interleave(
    {
      'node -e 0': () => measureProcess(['-e', '0'], options),
      'bare client with fetch': () => measureProcess([BARE, url, '1'], options),
      [`pi ${version}`]: () => measureProcess([PI, ...words], peer),
      'rye run': () => measureProcess(turn, options),
    },
    ROUNDS,
  );
  row('one headless turn beside peers', 'wall', 'over pi, wall', 'over pi, CPU', '');
  for (const [label, taken] of Object.entries(samples)) {
    processRow(label, { samples: taken, floors: samples[`pi ${version}`] });
  }
}

async function memory({ turn, options }) {
  const sizes = await interleave({ 'rye run': () => peakMemory(turn, options) }, ROUNDS);
  const size = median(sizes['rye run']);
  row('memory of one headless turn', mib(size), range(sizes['rye run'], mib));
  row('  target', verdict(size, TARGET_MIB, mib));
}
