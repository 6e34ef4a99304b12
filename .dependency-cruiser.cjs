// Allowed imports, one row per folder of src/. A folder may always import itself.
// A path ending in .ts names one file of that folder: its port.
const LAYERS = {
  schemas: ['core'],
  core: [],
  startup: ['core', 'items', 'tools/coerce.ts'],
  disk: ['core'],
  policy: ['core'],
  trust: ['core', 'disk'],
  log: ['core'],
  items: ['core', 'disk', 'trust'],
  hooks: ['core', 'policy'],
  schedules: ['core'],
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
  pi: ['core', 'log', 'export', 'threads'],
  fleet: ['core', 'disk', 'trust', 'items', 'schedules', 'storage', 'threads'],
  app: [
    'core',
    'disk',
    'policy',
    'trust',
    'log',
    'items',
    'hooks',
    'schedules',
    'providers',
    'tools',
    'storage',
    'loop',
    'threads',
    'export',
    'pi',
    'fleet',
    'startup',
  ],
  cli: ['core', 'disk', 'app', 'browser', 'fleet', 'schedules/options.ts'],
  browser: ['core', 'app', 'cli/terminal-text.ts', 'cli/visible.ts'],
};
// The published suites know the ports that they test, and no adapter.
const TESTED = [
  'core',
  'providers/provider.ts',
  'storage/store.ts',
  'storage/deliveries.ts',
  'storage/search-index.ts',
  'storage/sql-work.ts',
  'fleet/port.ts',
];
// Folders with no I/O at all, and the only builtins they may use.
const PURE = ['core', 'policy', 'log', 'hooks', 'loop', 'export', 'schedules'];
// Third-party packages with one home each, so that replacing one touches one folder.
const VENDORS = {
  '@anthropic-ai/sandbox-runtime': ['tools'],
  '@anthropic-ai/sdk': ['providers/anthropic'],
  openai: ['providers/openai'],
  'better-sqlite3': ['storage/sqlite'],
  '@modelcontextprotocol/sdk': ['tools/mcp'],
  pg: ['storage/postgres', 'fleet/dbos'],
  '@dbos-inc/dbos-sdk': ['fleet/dbos'],
  commander: ['cli'],
  '@mariozechner/pi-tui': ['browser'],
  'get-east-asian-width': ['cli'],
  zod: ['schemas'],
  croner: ['schedules'],
  diff: ['core'],
  vitest: [],
};
// Optional features: only these folders may load one, and only with `import()`, except for types.
const SATELLITES = {
  pi: ['app'],
  browser: ['cli'],
  fleet: ['app', 'cli'],
  'app/fleet': ['app', 'cli'],
};
// A satellite may consist of two folders: what composes it is beside the rest of the app.
const TOGETHER = { fleet: ['app/fleet'] };
const esc = (s) => s.replaceAll('.', '\\.');
const target = (t) => (t.endsWith('.ts') ? `^src/${esc(t)}$` : `^src/${t}/`);

module.exports = {
  forbidden: [
    {
      name: 'no-cycles',
      severity: 'error',
      from: { path: '^(?:src|testing)/' },
      to: { circular: true },
    },
    ...Object.entries(LAYERS).map(([from, allowed]) => ({
      name: `layer-${from}`,
      severity: 'error',
      from: { path: `^src/${from}/` },
      to: { path: '^src/', pathNot: [`^src/${from}/`, '^src/schemas/', ...allowed.map(target)] },
    })),
    {
      name: 'schemas-are-types-and-data',
      severity: 'error',
      comment: 'the declarations load zod; import their types and the generated .json files',
      from: { path: '^src/', pathNot: '^src/schemas/' },
      to: { path: '^src/schemas/.*\\.ts$', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'unknown-folder',
      severity: 'error',
      comment: 'a new folder under src/ needs a row in LAYERS',
      from: { path: '^src/[^/]+/', pathNot: Object.keys(LAYERS).map((f) => `^src/${f}/`) },
      to: { path: '.' },
    },
    {
      name: 'adapters-do-not-know-each-other',
      severity: 'error',
      from: { path: '^src/(storage|providers|tools)/([^/]+)/' },
      to: { path: '^src/$1/[^/]+/', pathNot: '^src/$1/$2/' },
    },
    {
      name: 'pure-folders-do-no-io',
      severity: 'error',
      from: { path: `^src/(${PURE.join('|')})/` },
      to: { dependencyTypes: ['core'], pathNot: '^(node:)?(buffer|crypto|path)$' },
    },
    {
      name: 'fs-only-in-fs-files',
      severity: 'error',
      comment: 'in items/, trust/ and threads/ only *-fs.ts touches the disk',
      from: { path: '^src/(items|trust|threads)/', pathNot: '-fs\\.ts$' },
      to: {
        dependencyTypes: ['core'],
        path: '^(node:)?(fs|fs/promises|child_process|net|http|https|os)$',
      },
    },
    {
      name: 'disk-only-in-fs-files',
      severity: 'error',
      from: { path: '^src/(items|trust|threads)/', pathNot: '-fs\\.ts$' },
      to: { path: '^src/disk/' },
    },
    ...Object.entries(VENDORS).map(([pkg, homes]) => ({
      name: `vendor-${pkg}`,
      severity: 'error',
      from: { path: '^src/', pathNot: homes.map((h) => `^src/${h}/`) },
      to: { path: `node_modules/${esc(pkg)}/` },
    })),
    ...Object.entries(SATELLITES).flatMap(([satellite, loaders]) => [
      {
        name: `satellite-${satellite}`,
        severity: 'error',
        from: { path: '^src/', pathNot: [satellite, ...loaders].map((f) => `^src/${f}/`) },
        to: { path: `^src/${satellite}/` },
      },
      {
        name: `satellite-${satellite}-loads-on-demand`,
        severity: 'error',
        from: {
          path: '^src/',
          pathNot: [satellite, ...(TOGETHER[satellite] ?? [])].map((f) => `^src/${f}/`),
        },
        to: { path: `^src/${satellite}/`, dynamic: false, dependencyTypesNot: ['type-only'] },
      },
    ]),
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
