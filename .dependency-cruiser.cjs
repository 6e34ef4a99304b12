// The kernel: allowed imports, one row per room. A room may always import itself.
// A path ending in .ts names one file of that room: its port.
const KERNEL = {
  schemas: ['core'],
  core: [],
  startup: ['core', 'items', 'tools/coerce.ts'],
  disk: ['core'],
  policy: ['core'],
  trust: ['core', 'disk'],
  log: ['core'],
  items: ['core', 'disk', 'trust'],
  schedules: ['core'],
  hooks: ['core', 'policy'],
  providers: ['core', 'policy', 'startup'],
  tools: ['core', 'disk', 'items', 'startup'],
  storage: ['core', 'disk', 'log', 'policy'],
  loop: ['core', 'policy', 'hooks', 'log', 'providers/provider.ts', 'tools/tool.ts'],
  threads: [
    'core',
    'disk',
    'policy',
    'hooks',
    'log',
    'trust',
    'items',
    'loop',
    'providers/provider.ts',
    'tools/tool.ts',
    'storage/store.ts',
  ],
  export: ['core', 'log', 'items', 'trust'],
  app: [
    'core',
    'disk',
    'policy',
    'trust',
    'log',
    'items',
    'hooks',
    'providers',
    'tools',
    'storage',
    'loop',
    'threads',
    'export',
    'schedules',
    'startup',
  ],
};
// A feature imports the kernel; its `cli` folder, the faces too. No feature knows another one.
const FEATURES = [
  'approvals',
  'chat',
  'fleet',
  'html',
  'mcp',
  'pi',
  'rules',
  'rye-os',
  'schedules',
  'search',
  'sessions',
  'skills',
  'worktrees',
];
// The published suites know the ports that they test, and no adapter.
const TESTED = [
  'core',
  'providers/provider.ts',
  'storage/store.ts',
  'storage/deliveries.ts',
  'storage/search-index.ts',
  'storage/sql-work.ts',
  'storage/fleet-queue.ts',
];
// Folders with no I/O at all, and the only builtins they may use.
const PURE = ['core', 'policy', 'log', 'hooks', 'loop', 'export', 'schedules'];
// Third-party packages with one home each, so that replacing one touches one folder.
const VENDORS = {
  '@anthropic-ai/sandbox-runtime': ['kernel/tools'],
  '@anthropic-ai/sdk': ['kernel/providers/anthropic'],
  openai: ['kernel/providers/openai'],
  'better-sqlite3': ['kernel/storage/sqlite'],
  '@modelcontextprotocol/sdk': ['features/mcp'],
  pg: ['features/fleet'],
  '@dbos-inc/dbos-sdk': ['features/fleet/dbos'],
  commander: ['faces/cli'],
  '@mariozechner/pi-tui': ['faces/ui/browser'],
  'get-east-asian-width': ['faces/ui'],
  zod: ['kernel/schemas'],
  croner: ['kernel/schedules'],
  diff: ['kernel/core'],
  vitest: [],
};
const esc = (s) => s.replaceAll('.', '\\.');
const target = (t) => (t.endsWith('.ts') ? `^src/kernel/${esc(t)}$` : `^src/kernel/${t}/`);

module.exports = {
  forbidden: [
    {
      name: 'no-cycles',
      severity: 'error',
      from: { path: '^(?:src|testing)/' },
      to: { circular: true },
    },
    ...Object.entries(KERNEL).map(([from, allowed]) => ({
      name: `kernel-${from}`,
      severity: 'error',
      from: { path: `^src/kernel/${from}/` },
      to: {
        path: '^src/',
        pathNot: [`^src/kernel/${from}/`, '^src/kernel/schemas/', ...allowed.map(target)],
      },
    })),
    {
      name: 'features-know-the-kernel',
      severity: 'error',
      from: { path: '^src/features/([^/]+)/', pathNot: '^src/features/[^/]+/(?:index\\.ts$|cli/)' },
      to: { path: '^src/', pathNot: ['^src/kernel/', '^src/features/$1/'] },
    },
    {
      name: 'features-bring-commands',
      severity: 'error',
      from: { path: '^src/features/([^/]+)/(?:index\\.ts$|cli/)' },
      to: { path: '^src/', pathNot: ['^src/kernel/', '^src/faces/', '^src/features/$1/'] },
    },
    {
      name: 'one-list-of-features',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/features/([^/]+/|all\\.ts$)' },
      to: { path: '^src/features/[^/]+/' },
    },
    {
      name: 'faces-know-the-kernel',
      severity: 'error',
      from: { path: '^src/faces/' },
      to: {
        path: '^src/',
        pathNot: ['^src/kernel/(?:app|core|disk)/', '^src/faces/', '^src/features/shipped\\.ts$'],
      },
    },
    {
      name: 'schemas-are-types-and-data',
      severity: 'error',
      comment: 'the declarations load zod; import their types and the generated .json files',
      from: { path: '^src/', pathNot: '^src/kernel/schemas/' },
      to: { path: '^src/kernel/schemas/.*\\.ts$', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'unknown-folder',
      severity: 'error',
      comment: 'a new room needs a row in KERNEL, a new feature one in FEATURES',
      from: {
        path: '^src/[^/]+/',
        pathNot: [
          '^src/features/(?:all|shipped)\\.ts$',
          '^src/faces/(?:cli|ui)/',
          ...Object.keys(KERNEL).map((f) => `^src/kernel/${f}/`),
          ...FEATURES.map((f) => `^src/features/${f}/`),
        ],
      },
      to: { path: '.' },
    },
    {
      name: 'adapters-do-not-know-each-other',
      severity: 'error',
      from: { path: '^src/kernel/(storage|providers|tools)/([^/]+)/' },
      to: { path: '^src/kernel/$1/[^/]+/', pathNot: '^src/kernel/$1/$2/' },
    },
    {
      name: 'pure-folders-do-no-io',
      severity: 'error',
      from: { path: `^src/kernel/(${PURE.join('|')})/` },
      to: { dependencyTypes: ['core'], pathNot: '^(node:)?(buffer|crypto|path)$' },
    },
    {
      name: 'fs-only-in-fs-files',
      severity: 'error',
      comment: 'in items/, trust/ and threads/ only *-fs.ts touches the disk',
      from: { path: '^src/kernel/(items|trust|threads)/', pathNot: '-fs\\.ts$' },
      to: {
        dependencyTypes: ['core'],
        path: '^(node:)?(fs|fs/promises|child_process|net|http|https|os)$',
      },
    },
    {
      name: 'disk-only-in-fs-files',
      severity: 'error',
      from: { path: '^src/kernel/(items|trust|threads)/', pathNot: '-fs\\.ts$' },
      to: { path: '^src/kernel/disk/' },
    },
    ...Object.entries(VENDORS).map(([pkg, homes]) => ({
      name: `vendor-${pkg}`,
      severity: 'error',
      from: { path: '^src/', pathNot: homes.map((h) => `^src/${h}/`) },
      to: { path: `node_modules/${esc(pkg)}/` },
    })),
    {
      name: 'src-does-not-import-tests',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '^test(?:ing)?/|\\.test\\.ts$' },
    },
    {
      name: 'published-suites-know-ports',
      severity: 'error',
      from: { path: '^testing/' },
      to: { path: '^(?:src|test)/', pathNot: TESTED.map(target) },
    },
  ],
  options: {
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    doNotFollow: { path: 'node_modules' },
  },
};
