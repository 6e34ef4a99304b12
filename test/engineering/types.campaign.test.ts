import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';

const TSC = path.resolve('node_modules/@typescript/native/bin/tsc');
const BUILD_MS = 300_000;

const PROGRAM = `
import { homedir } from 'node:os';
import { type ModelProvider, openMemoryStore, type Store, type StoreFactory } from 'rye-threads';
import { describeProvider, describeStore } from 'rye-threads/testing/conformance';
import { type BehaviorOptions, completedOrThrow, composePresets, openRye, type Preset, type Risk } from 'rye-threads';

const shop: Preset = {
  tools: {
    'shop/price': {
      description: 'The price of an item in cents.',
      inputSchema: { type: 'object', properties: { item: { type: 'string' } }, required: ['item'] },
      traits: { reads_only: true, network: false, risk: 'safe' },
      execute: ({ item }) => ({ cents: String(item).length * 100 }),
    },
  },
};
const behavior: BehaviorOptions = { tool_budgets: { 'shop/price': { max: 3, on_exceed: 'steer' } } };
const accepted: readonly Risk[] = ['elevated'];
const rye = openRye({
  projectPath: process.cwd(),
  userSpacePath: homedir(),
  env: process.env,
  preset: composePresets(shop, { limits: { turns: 5 } }),
});
const outcome = await rye.run({
  directiveId: 'quote',
  behavior,
  acknowledge: accepted,
  handlers: {
    tool_gate: ({ input }) => (input['item'] === 'moon' ? { block: 'not for sale' } : undefined),
    'child.message': ({ depth, payload }) => console.log(depth, payload.message.role),
  },
});
if (outcome.kind === 'failed') console.log(outcome.error.code);
console.log(completedOrThrow(outcome).outputs);
// @ts-expect-error: the member is tool_budgets
await rye.run({ directiveId: 'quote', behavior: { tool_budget: 3 } });
// @ts-expect-error: the risk is elevated
await rye.run({ directiveId: 'quote', acknowledge: ['elevatedd'] });
rye.close();

declare const provider: ModelProvider;
const opened: StoreFactory = openMemoryStore;
describeStore('memory', openMemoryStore, { openAgain: (store: Store) => store });
// @ts-expect-error: the situation is tear
describeStore('memory', openMemoryStore, { torn: () => undefined });
describeProvider('mine', {
  answering: async ({ text, calls }) => ({ provider, ...(text === '' && calls.length > 0 ? {} : {}) }),
  failing: async () => ({ provider }),
  skips: { hanging: 'never', flooding: 'never' },
});
openRye({ projectPath: '/', userSpacePath: '/', env: {}, store: opened });
`;

it('a strict program compiles against the types of the package as it is built', {
  timeout: BUILD_MS,
}, () => {
  const folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-types-')));
  onTestFinished(() => removeFolder(folder));
  const rye = path.join(folder, 'rye-threads');
  mkdirSync(rye);
  // `npm run check` checks the sources; the declarations are the same without it, in a third of the time
  const emit = ['-p', 'tsconfig.build.json', '--emitDeclarationOnly', '--noCheck', '--outDir'];
  execFileSync(process.execPath, [TSC, ...emit, path.join(rye, 'dist')]);
  cpSync('package.json', path.join(rye, 'package.json'));
  symlinkSync(path.resolve('node_modules'), path.join(rye, 'node_modules'));
  const program = path.join(folder, 'program');
  mkdirSync(path.join(program, 'node_modules'), { recursive: true });
  symlinkSync(rye, path.join(program, 'node_modules/rye-threads'));
  symlinkSync(path.resolve('node_modules/@types'), path.join(program, 'node_modules/@types'));
  writeFileSync(path.join(program, 'package.json'), '{"type":"module"}');
  writeFileSync(path.join(program, 'main.ts'), PROGRAM);
  const strict = '--strict --exactOptionalPropertyTypes --noUncheckedIndexedAccess --noEmit';
  const target = '--target es2023 --module nodenext --types node --pretty false';
  const { status, stdout } = spawnSync(
    process.execPath,
    [TSC, ...strict.split(' '), ...target.split(' '), 'main.ts'],
    { cwd: program, encoding: 'utf8' },
  );
  expect([stdout, status]).toEqual(['', 0]);
});
