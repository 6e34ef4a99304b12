import { expect, test } from 'vitest';
import { readToolMetadata } from '../../src/kernel/items/tool-metadata-fs.ts';

const HEAD = '__version__ = "1.0.0"\n__tool_description__ = "d"\n';
const HEADER = '# rye:tool\n# version: 1.0.0\n# description: d\n# /rye:tool\n';

/** The reason why rye does not run the file, or how it runs. */
async function judge(name: string, text: string): Promise<string> {
  const { unsupported, runtime } = await readToolMetadata(text, name);
  return unsupported?.message ?? runtime?.how ?? 'script';
}

/** Top-level statements of a module without an effect. */
const QUIET_PYTHON = `"""A library.

run(this) is prose.
"""
from __future__ import annotations
import logging, os, re, sys, threading
import re as regex
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar
if TYPE_CHECKING:
    from other import Thing
try:
    import yaml
    LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
except ImportError:
    print("install yaml", file=sys.stderr)
    sys.exit(1)
if sys.version_info < (3, 8):
    raise RuntimeError("too old")
T = TypeVar("T")
logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)
PATTERN = re.compile(r"x")
OTHER = regex.compile("y", regex.I)
HERE = Path(__file__).resolve().parent / os.environ.get("X", "x")
LOCK = threading.Lock()
WORDS = frozenset("a b".split())
TABLE = {}
for name in sorted(WORDS):
    TABLE[name] = name.upper()
TABLE.update({"c": "C"})
LATER = lambda text: print(text)
del name
class Kind(Enum):
    A = "a"
@dataclass(frozen=True)
class Row:
    names: list = field(default_factory=list)
class Failure(Exception):
    def __init__(self, why):
        super().__init__(why)
class Cache:
    """Holds."""
    size: int = 3
    def __init__(self):
        self._rows = dict()
    def show(self):
        print(self._rows)
def timed(call):
    @wraps(call)
    def inner(*args):
        print("timed")
        return call(*args)
    return inner
def retry(times):
    def wrap(call):
        def inner(*args):
            print(times)
            return call(*args)
        return inner
    return wrap
@timed
@retry(3)
@lru_cache(maxsize=None)
def helper(n):
    return n + 1
async def later():
    print(helper(1))
def process(parsed):
    raise ValueError(parsed)
def default():
    return {"a": 1}
DEFAULT = default()
CACHE = Cache()
__all__ = ["helper"]
__all__ += ["Cache"]
__all__.append("Row")
`;

test('a Python file of definitions, constants and imports is refused, with what to write', async () => {
  const { unsupported } = await readToolMetadata(HEAD + QUIET_PYTHON, 'lib.py');
  expect(unsupported).toMatchObject({
    code: 'tool_unsupported',
    message:
      'lib.py:1: the file only defines functions, classes or constants, so running it would do nothing',
    hint: expect.stringMatching(/^Define execute\(params.*__files__ = \{"lib\.py": "SHA-256"\}/),
  });
});

test.each([
  ['only comments', '# nothing\n'],
  ['only imports', 'import os\nfrom re import compile\n'],
  ['only constants', 'X = 1\nY = [X, "y"]\n'],
  ['only a class', 'class A:\n    x = 1\n'],
  ['only names', '"""Names."""\n__all__ = ["a"]\n'],
  [
    'only functions below a header',
    `${HEADER}import re\nX = re.compile("x")\ndef f():\n    print(1)\n`,
  ],
])('a Python file with %s is refused', async (_, text) => {
  expect(await judge('x.py', text)).toMatch(/do nothing|runs nothing/);
});

const RUN = 'def run():\n    print(1)\n    return 0\n';

test.each([
  ['a call', 'run()'],
  ['a call of another module', 'import work\nwork.run()'],
  ['an assigned call', 'result = run()'],
  ['an assigned call of another module', 'import work\nresult = work.run()'],
  ['an exit with a result', 'raise SystemExit(run())'],
  ['an exit', 'raise SystemExit("no")'],
  ['an exit under a condition', 'import os\nif not os.path.exists("x"):\n    raise SystemExit(1)'],
  ['a condition that calls', 'if run():\n    pass'],
  ['a loop', 'for n in range(3):\n    print(n)'],
  ['a loop over the input', 'import sys\nfor line in sys.stdin:\n    n = line'],
  ['a loop with an assigned call', 'for n in range(3):\n    x = run()'],
  ['a while loop', 'n = 3\nwhile n:\n    n -= 1'],
  ['a with', 'with open("/dev/null") as file:\n    x = 1'],
  [
    'a with of its own class',
    'class A:\n    def __enter__(self):\n        run()\n    def __exit__(self, *a):\n        pass\nwith A():\n    pass',
  ],
  ['a try', 'try:\n    x = run()\nexcept ValueError:\n    pass'],
  [
    'an else of an import',
    'try:\n    import json\nexcept ImportError:\n    json = None\nelse:\n    run()',
  ],
  ['a comprehension', 'x = [print(n) for n in range(3)]'],
  ['a class body', 'class A:\n    run()'],
  ['its own class', 'class A:\n    def __init__(self):\n        run()\nA()'],
  ['a method of its own class', 'class A:\n    def get(self):\n        run()\nx = A().get()'],
  ['a decorator that runs', 'def now(f):\n    f()\n    return f\n@now\ndef g():\n    pass'],
  ['a function for the exit', 'import atexit\n@atexit.register\ndef g():\n    print(1)'],
  ['an assertion', 'import os\nassert os.getcwd()'],
  ['a name that hides a pure one', 'def list():\n    print(1)\nx = list()'],
  ['a lambda that is called', 'x = sorted([1], key=lambda n: print(n))'],
  ['a main guard', 'if __name__ == "__main__":\n    run()'],
])('a Python file whose top level works through %s stays a tool', async (_, work) => {
  expect(await judge('x.py', `${HEAD}${RUN}${work}\n`)).toBe('script');
});

test.each([
  ['is loaded for its work', '', 'script'],
  ['is used by functions', 'def f():\n    return work.x\n', /do nothing/],
])('a Python file whose pinned module %s', async (_, rest, expected) => {
  const files = `{work.py: ${'a'.repeat(64)}}`;
  const header = HEADER.replace('# /rye', `# files: ${files}\n# /rye`);
  expect(await judge('x.py', `${header}import work\n${rest}`)).toMatch(expected);
});

test('execute is called although the module logs, fills a table and guards an import', async () => {
  const text = `${HEAD}${QUIET_PYTHON}def execute(params, project_path):\n    return {}\n`;
  expect(await judge('x.py', text)).toBe('function');
});

test.each([
  [
    'functions and exports',
    'export function run() { console.log(1); }\nexport const go = () => run();',
  ],
  [
    'plain values',
    "const set = new Set(['a']);\nconst re = new RegExp('x');\nexport const all = Object.freeze({ set, re });",
  ],
  [
    'CommonJS exports',
    "'use strict';\nObject.defineProperty(exports, '__esModule', { value: true });\nconst fs = require('fs');\nmodule.exports = { run() { fs.readFileSync(0); } };",
  ],
  [
    'a header',
    `// rye:tool\n// version: 1.0.0\n// description: d\n// /rye:tool\nexport function run() {}`,
  ],
])('a Node file of %s is refused', async (_, text) => {
  expect(await judge('x.js', `${text}\n`)).toContain('only declares and exports');
});

test.each([
  ["throw new Error('no');"],
  ["import './main.mjs';"],
  ["require('./main.js');"],
  ['process.exitCode = 3;'],
  ['let n = 0;\nfor await (const part of process.stdin) n += part.length;'],
  ['const x = new Set([console.log(1)]);'],
  ['const run = () => 1;\nexport const x = run();'],
  ['class A { static { console.log(1); } }'],
])('a Node file that works stays a tool: %s', async (text) => {
  expect(await judge('x.js', `${text}\n`)).toBe('script');
});

test.each([
  ['functions', 'f() {\n  echo 1\n}\nfunction g {\n  f\n}\nh() { g; }'],
  [
    'options and variables',
    `set -euo pipefail\nexport A="$HOME/x" # home\nB='b c'\nreadonly C=$A\nD=\nf() {\n  echo\n}`,
  ],
])('a shell script of %s is refused', async (_, text) => {
  expect(await judge('x.sh', `#!/bin/sh\n${HEADER}${text}\n`)).toContain('no command outside');
});

test.each([
  ['f() {\n  echo 1\n}\nf'],
  ['f() {\n  echo 1\n  }\nf\ng() {\n  echo\n}'],
  ['f() { echo 1; }; f'],
  ['f() {\n  echo 1\n} && f'],
  ['f() {\n  cat <<END\n}\nEND\n}\nf'],
  ['A=$(date)'],
  ['A=1 env'],
  ['A=\\\n env'],
  ['A="${1:?missing}"'],
  ['set -e; date'],
  ['f() {\n  echo 1\n}\ntrap f EXIT'],
  ['[ -e x ] && exit 3'],
  ['. ./lib.sh'],
])('a shell script that works stays a tool: %j', async (text) => {
  expect(await judge('x.sh', `${HEADER}${text}\n`)).toBe('script');
});
