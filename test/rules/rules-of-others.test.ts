import { createRequire } from 'node:module';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { stringify } from 'yaml';
import { type Lab, openLab } from '../attacks/lab.ts';

/** A rule as its program reads it, with texts that trigger it and texts that do not. */
interface Foreign {
  readonly members: Readonly<Record<string, string | readonly string[]>>;
  /** The file written; absent: the answer's prose. */
  readonly file?: string;
  readonly bad: readonly string[];
  readonly good: readonly string[];
}

function files(...globs: readonly string[]): string {
  return globs.flatMap((glob) => [`tool:edit(${glob})`, `tool:write(${glob})`]).join(', ');
}

const require = createRequire(import.meta.url);
// without these packages, the rules with patterns of syntax would be refused
require.resolve('@ast-grep/napi');
require.resolve('@ast-grep/lang-go');

const GO = { interruptMode: 'never', scope: files('*.go') };
const RS = { interruptMode: 'never', scope: files('*.rs') };
const TS = { interruptMode: 'never', scope: files('*.ts', '*.tsx') };
const ALL_TS = { interruptMode: 'never', scope: files('*.{ts,tsx,mts,cts}') };

const CLEARS = ['clearTimeout', 'clearInterval', 'clearImmediate'].flatMap((clear) =>
  ['$X', '$X !== null', '$X != null', '$X !== undefined', '$X != undefined'].flatMap((test) => [
    `if (${test}) ${clear}($X)`,
    `if (${test}) { ${clear}($X) }`,
  ]),
);

/** The rules that the package of oh-my-pi 18 ships: their triggers are facts, the examples are ours. */
const PACKAGE: Readonly<Record<string, Foreign>> = {
  'go-add-cleanup': {
    members: { ...GO, condition: 'runtime\\.SetFinalizer' },
    file: 'a.go',
    bad: ['runtime.SetFinalizer(f, (*F).Close)'],
    good: ['runtime.AddCleanup(f, closeFd, f.fd)'],
  },
  'go-bench-loop': {
    members: {
      interruptMode: 'never',
      scope: files('*_test.go'),
      astCondition: [
        'func $F($B *testing.B) { $$$PRE for $I := 0; $I < $B.N; $I++ { $$$BODY } $$$POST }',
      ],
    },
    file: 'a_test.go',
    bad: [
      'func BenchmarkA(b *testing.B) {\n\tfor i := 0; i < b.N; i++ {\n\t\tA(x)\n\t}\n}',
      'func BenchmarkA(bb *testing.B) {\n\tx := 1\n\tfor n := 0; n < bb.N; n++ {\n\t\tA(x)\n\t}\n\tB()\n}',
    ],
    good: [
      'func BenchmarkA(b *testing.B) {\n\tfor b.Loop() {\n\t\tA(x)\n\t}\n}',
      'func Count(b *testing.B) {\n\tfor i := 0; i < n; i++ {\n\t\tA(x)\n\t}\n}',
    ],
  },
  'go-exp-promoted': {
    members: { ...GO, condition: ['"golang.org/x/exp/slices"', '"golang.org/x/exp/maps"'] },
    file: 'a.go',
    bad: ['import "golang.org/x/exp/slices"', 'import m "golang.org/x/exp/maps"'],
    good: ['import "slices"', 'import "golang.org/x/exp/rand"'],
  },
  'go-ioutil': {
    members: { ...GO, condition: '"io/ioutil"' },
    file: 'a.go',
    bad: ['import (\n\t"io/ioutil"\n)'],
    good: ['import (\n\t"io"\n\t"os"\n)'],
  },
  'go-join-hostport': {
    members: { ...GO, condition: 'fmt\\.Sprintf\\("%s:%d"' },
    file: 'a.go',
    bad: ['a := fmt.Sprintf("%s:%d", host, port)'],
    good: ['a := net.JoinHostPort(host, port)', 'fmt.Sprintf("%s: %d", k, v)'],
  },
  'go-new-expr': {
    members: {
      ...GO,
      astCondition: [
        'func $F($V $T) *$T { return &$V }',
        'func $F[$$$TP]($V $T) *$T { return &$V }',
      ],
    },
    file: 'a.go',
    bad: [
      'func boolPtr(v bool) *bool   { return &v }',
      'func Ptr[T any](value T) *T {\n\treturn &value\n}',
    ],
    good: [
      'p := new(true)',
      'func at(v int) *int {\n\tv++\n\treturn &v\n}',
      'func other(v int) *string { return &name }',
    ],
  },
  'go-rand-v2': {
    members: { ...GO, condition: '"math/rand"' },
    file: 'a.go',
    bad: ['import "math/rand"'],
    good: ['import "math/rand/v2"'],
  },
  'go-range-int': {
    members: { ...GO, astCondition: ['for $I := 0; $I < $N; $I++ { $$$BODY }'] },
    file: 'a.go',
    bad: [
      'func f() {\n\tfor i := 0; i < n; i++ {\n\t\tuse(i)\n\t}\n}',
      'func f() {\n\tfor k := 0; k < len(s); k++ {\n\t\tuse(s[k])\n\t}\n}',
    ],
    good: [
      'func f() {\n\tfor i := range n {\n\t\tuse(i)\n\t}\n}',
      'func f() {\n\tfor i := 1; i < n; i++ {\n\t\tuse(i)\n\t}\n}',
      'func f() {\n\tfor i := n - 1; i >= 0; i-- {\n\t\tuse(i)\n\t}\n}',
      '// for i := 0; i < n; i++ { use(i) }\nfunc f() {}',
    ],
  },
  'rs-box-leak': {
    members: { ...RS, condition: 'Box::leak' },
    file: 'a.rs',
    bad: ['let s: &str = Box::leak(x);'],
    good: ['let s = Arc::new(x);'],
  },
  'rs-future-prelude': {
    members: { ...RS, condition: 'std::future::Future' },
    file: 'a.rs',
    bad: ['fn f() -> impl std::future::Future {'],
    good: ['fn f() -> impl Future {'],
  },
  'rs-lazylock': {
    members: { ...RS, condition: ['once_cell::', 'OnceLock::new'] },
    file: 'a.rs',
    bad: ['use once_cell::sync::Lazy;', 'static A: X = OnceLock::new();'],
    good: ['static A: LazyLock<X> = LazyLock::new(f);'],
  },
  'rs-match-ergonomics': {
    members: { ...RS, condition: ['\\(ref mut ', '\\(ref [a-z_]'] },
    file: 'a.rs',
    bad: ['Some(ref mut x) => x,', 'Some(ref _y) => 1,'],
    good: ['Some(x) => x,', 'f(reference)'],
  },
  'rs-parking-lot': {
    members: {
      ...RS,
      condition: [
        '\\.lock\\(\\)\\.unwrap\\(\\)',
        '\\.read\\(\\)\\.unwrap\\(\\)',
        '\\.write\\(\\)\\.unwrap\\(\\)',
      ],
    },
    file: 'a.rs',
    bad: ['m.lock().unwrap()', 'm.read().unwrap().x', 'm.write().unwrap() = 1'],
    good: ['m.lock()', 'm.lock()?.unwrap()'],
  },
  'rs-result-type': {
    members: { ...RS, condition: 'type\\s+Result<[A-Za-z_]\\w*>\\s*=' },
    file: 'a.rs',
    bad: ['pub type Result<T> = std::result::Result<T, E>;'],
    good: ['pub type Result<T, E = Error> = std::result::Result<T, E>;'],
  },
  'ts-bare-catch': {
    members: { ...TS, condition: 'catch \\(_' },
    file: 'a.ts',
    bad: ['} catch (_error) {'],
    good: ['} catch {', '} catch (error) {'],
  },
  'ts-import-type': {
    members: { ...TS, condition: 'import\\(' },
    file: 'a.tsx',
    bad: ["let a: import('x').A;"],
    good: ["import type { A } from 'x';"],
  },
  'ts-no-any': {
    members: { ...TS, condition: ': any|as any' },
    file: 'a.ts',
    bad: ['let a: any;', 'a as any'],
    good: ['let a: unknown;', 'company'],
  },
  'ts-no-deprecated-leftovers': {
    members: { ...TS, condition: '@deprecated' },
    file: 'a.ts',
    bad: ['/** @deprecated use b */'],
    good: ['/** use b */'],
  },
  'ts-no-dynamic-import': {
    members: { ...TS, condition: 'await import\\(' },
    file: 'a.ts',
    bad: ["await import('./a.ts')"],
    good: ["import a from './a.ts'"],
  },
  'ts-no-inline-cast-access': {
    members: {
      ...ALL_TS,
      astCondition: [
        '($X as { $$$BODY }).$PROP',
        '($X as { $$$BODY })?.$PROP',
        '($X as { $$$BODY })[$IDX]',
      ],
    },
    file: 'a.mts',
    bad: [
      'const a = (v as { b: unknown }).b;',
      'const a = (v as { b: { c: string } }).b.c;',
      'const a = (v as { b?: string })?.b;',
      'const a = (v as { on: boolean })["on"];',
    ],
    good: [
      'const a = (v as Named).b;',
      'const a = v as { b: string };',
      '// (v as { b: unknown }).b',
      'const s = "(v as { b: unknown }).b";',
    ],
  },
  'ts-no-local-is-record': {
    members: {
      ...ALL_TS,
      condition: [
        '\\bfunction\\s+isRecord(?:\\s*<[^>]*>)?\\s*\\(',
        '\\b(?:const|let|var)\\s+isRecord\\b\\s*(?::[\\s\\S]{0,300}?)?=\\s*(?:async\\s+)?(?:function\\b|(?:<[^>\\n]*>\\s*)?(?:\\([^)]*\\)|[A-Za-z_$][\\w$]*)\\s*(?::[\\s\\S]{0,300}?)?=>)',
      ],
    },
    file: 'a.cts',
    bad: [
      'function isRecord(value: unknown): value is R {',
      'const isRecord = (value: unknown): value is R =>\n  !!value;',
      'const isRecord: Guard = async x => x',
    ],
    good: ["import { isRecord } from './guards';", 'const isRecordable = 1;'],
  },
  'ts-no-return-type': {
    members: { ...TS, condition: 'ReturnType<' },
    file: 'a.ts',
    bad: ['let a: ReturnType<typeof f>;'],
    good: ['let a: Named;'],
  },
  'ts-no-test-timers': {
    members: {
      interruptMode: 'never',
      scope: files('*.test.ts'),
      condition: ['Bun\\.sleep\\(', '\\bsetInterval\\(', '\\bsetTimeout\\('],
    },
    file: 'src/a.test.ts',
    bad: ['await Bun.sleep(5)', 'setInterval(f)', 'setTimeout(f)'],
    good: ['vi.useFakeTimers()', 'resetTimeout()'],
  },
  'ts-no-tiny-functions': {
    members: {
      ...TS,
      condition:
        '(?m)\\{\\s*return [^;{}\\n]+;?\\s*\\}|\\b(?:const|let|var)\\s+[\\w$]+\\s*=\\s*(\\([^)]*\\)|[a-zA-Z_$][\\w$]*)\\s*=>\\s*[^{\\n]+$',
    },
    file: 'a.ts',
    bad: [
      'function f(x: string) {\n  return x.length;\n}',
      'const name = (u: User) => u.name;',
      'const f = x => x + 1\nf(2)',
    ],
    good: ['if (x.length === 0) {', 'const f = (x) => {\n  use(x);\n};'],
  },
  'ts-promise-with-resolvers': {
    members: { ...TS, condition: 'new Promise\\(' },
    file: 'a.ts',
    bad: ['new Promise((resolve) => resolve(1))'],
    good: ['Promise.withResolvers()'],
  },
  'ts-redundant-clear-guard': {
    members: {
      interruptMode: 'never',
      scope: files('*.{ts,tsx,js,jsx,mts,cts,mjs,cjs}'),
      astCondition: CLEARS,
    },
    file: 'a.js',
    bad: [
      'if (this.timer) clearTimeout(this.timer);',
      'if (h !== null) clearInterval(h);',
      'if (id != undefined) {\n  clearImmediate(id);\n}',
    ],
    good: [
      'clearTimeout(this.timer);',
      'if (a) clearTimeout(b);',
      'if (t) {\n  clearTimeout(t);\n  t = undefined;\n}',
    ],
  },
  'ts-set-map': {
    members: {
      interruptMode: 'never',
      scope: files('**/*.{ts,tsx}'),
      condition: '\\bnew\\s+(Set|Map)\\b',
    },
    file: 'deep/in/a.tsx',
    bad: ['new Set([1])', 'new  Map()'],
    good: ['new Setting()', 'const r: Record<K, V> = {}'],
  },
};

/** The forms of nine rules in public repositories. */
const PUBLIC: Readonly<Record<string, Foreign>> = {
  'legacy-trigger': {
    members: { ttsr_trigger: 'todo_write' },
    bad: ['I call todo_write now.'],
    good: ['I call todo now.'],
  },
  'legacy-camel-trigger': {
    members: { ttsrTrigger: 'console\\.log\\(' },
    file: 'a.js',
    bad: ['console.log(1)'],
    good: ['logger.info(1)'],
  },
  'quoted-json': {
    members: { ttsrTrigger: '"op"\\s*:\\s*"pr_push"' },
    bad: ['{"op": "pr_push"}'],
    good: ['{"op": "pr_create"}'],
  },
  'alternatives-with-dots': {
    members: { ttsr_trigger: 'git (commit|add|push).*main|on branch (main|master)' },
    bad: ['git push origin main', 'on branch master'],
    good: ['git push origin work'],
  },
  'delta-cache': {
    members: {
      condition: ['\\.cache\\(\\s*\\)', '\\.persist\\(', '\\bCACHE\\s+(?:LAZY\\s+)?TABLE\\b'],
      scope: files('*.{sql,py,ipynb}'),
      interruptMode: 'never',
    },
    file: 'jobs/a.py',
    bad: ['df.cache( )', 'df.persist(x)'],
    good: ['df.cached()', 'df.where(x)'],
  },
  'tsconfig-types': {
    members: {
      condition:
        '("types"\\s*:\\s*\\[[^\\]]*"(@types\\/)?node"[^\\]]*\\]|"include"\\s*:\\s*\\[[^\\]]*\\b(vite|scripts)\\b)',
      scope: ['tool:edit(**/tsconfig.json)', 'tool:write(**/tsconfig.json)'],
      interruptMode: 'tool-only',
    },
    file: 'packages/a/tsconfig.json',
    bad: ['{"types": ["x",\n "node"]}', '{"include": ["vite.config.ts"]}'],
    good: ['{"types": []}'],
  },
  'ideographs-in-a-window': {
    members: { condition: '[\\u4e00-\\u9fff][\\s\\S]{0,800}TODO', globs: ['**/*.md'] },
    file: 'docs/a.md',
    bad: ['漢字\nTODO'],
    good: ['TODO 漢字', 'abc TODO'],
  },
  'look-ahead': {
    members: { condition: '(?i)todo(?!\\(#\\d+\\))' },
    bad: ['ToDo: later'],
    good: ['TODO(#12)'],
  },
  'named-back-reference': {
    members: { condition: '\\n(?<indent>\\t+)if .*\\n\\k<indent>return' },
    file: 'a.go',
    bad: ['\n\t\tif x {\n\t\treturn'],
    good: ['\n\t\tif x {\n\treturn'],
  },
};

/** The JavaScript engine of those programs; undefined for a rule without expressions. */
function oracle(members: Foreign['members']): ((text: string) => boolean) | undefined {
  const written = members['condition'] ?? members['ttsr_trigger'] ?? members['ttsrTrigger'];
  if (written === undefined) return undefined;
  const expressions = [written].flat().map((one) => {
    const [start = '', flags = ''] = /^\(\?([ims]+)\)/.exec(one) ?? [];
    return new RegExp(one.slice(start.length), flags);
  });
  return (text) => expressions.some((one) => one.test(text));
}

let lab: Lab;
const rules = { ...PACKAGE, ...PUBLIC };
beforeAll(async () => {
  lab = await openLab();
  for (const [name, { members }] of Object.entries(rules)) {
    lab.write(`rules/${name}.md`, `---\n${stringify(members)}---\nRewrite it.\n`);
  }
  await lab.sign('rule', '**');
});
afterAll(async () => await lab.remove());

async function triggers(name: string, text: string, file: string | undefined): Promise<boolean> {
  const { hits } = await lab.rye().rules.test({
    text,
    rule: name,
    ...(file === undefined ? { source: 'text' } : { source: 'tool', path: file }),
  });
  return hits.length > 0;
}

describe.each([
  ['of the package', PACKAGE, 27],
  ['of public repositories', PUBLIC, 9],
])('the rules %s behave as there', (_where, table, count) => {
  it('all are signed and watch', async () => {
    const listed = (await lab.rye().rules.list()).rules.filter(({ name }) => name in table);
    expect(listed).toHaveLength(count);
    expect(listed.filter(({ bucket }) => bucket !== 'stream')).toEqual([]);
    expect(listed.flatMap(({ problems }) => problems)).toEqual([]);
  });

  it.each(Object.entries(table))('%s', async (name, { members, file, bad, good }) => {
    const expected = oracle(members);
    for (const [texts, isBad] of [
      [bad, true],
      [good, false],
    ] as const) {
      for (const text of texts) {
        if (expected) expect([text, expected(text)]).toEqual([text, isBad]);
        expect([text, await triggers(name, text, file)]).toEqual([text, isBad]);
      }
    }
    // a file that the rule is not about
    const [first = ''] = bad;
    if (file !== undefined && members['scope'] !== undefined) {
      expect(await triggers(name, first, 'notes.txt')).toBe(false);
    }
  });
});
