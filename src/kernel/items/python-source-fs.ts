import { spawn } from 'node:child_process';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import { isJsonObject, type JsonObject, type JsonValue, parseJson } from '../core/json.ts';
import { absoluteSearchPath } from '../core/text.ts';
import { PYTHON_EFFECTS } from './python-effects.ts';
import type { ModuleImport, SourceFacts } from './tool-advice.ts';
import { type RawToolMetadata, TOOL_CONSTANTS, toolMalformed } from './tool-metadata.ts';

export interface PythonOptions {
  /** The interpreter that parses Python. Default `python3`. */
  readonly python?: string;
  /** PATH to find it. Default: the PATH of this process. */
  readonly searchPath?: string;
  readonly timeoutMs?: number;
}

/**
 * Reads source on stdin and prints the top-level constants named by the arguments, and facts about the module. `ast` only
 * parses; nothing is imported or run, and -I excludes the working directory and the user's site packages. `Reader`
 * resolves constants that refer to other module-level literals, because tools share lists between a schema and code.
 */
const PYTHON = `
import ast, json, sys
names = set(sys.argv[1:])
source = sys.stdin.buffer.read()
def fail(message, node, hint=None):
    print(json.dumps({"error": message, "hint": hint, "line": getattr(node, "lineno", 1) or 1, "column": (getattr(node, "col_offset", 0) or 0) + 1}))
    sys.exit(0)
try:
    tree = ast.parse(source)
except SyntaxError as error:
    print(json.dumps({"error": "this is not Python: " + str(error.msg), "line": error.lineno or 1, "column": error.offset or 1}))
    sys.exit(0)
except (ValueError, RecursionError, MemoryError) as error:
    fail("this is not Python: " + str(error), None)
def assignment(node):
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id, node.value
    if isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
        return node.target.id, node.value
    return None, None
class Unknown(Exception):
    def __init__(self, node, why):
        self.node, self.why = node, why
MUTATORS = {"append", "extend", "insert", "remove", "pop", "clear", "update", "setdefault", "sort", "reverse", "add", "discard", "popitem"}
values, changed = {}, set()
for node in tree.body:
    name, value = assignment(node)
    if name is not None:
        if name in values:
            changed.add(name)
        values[name] = value
        continue
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, (ast.Store, ast.Del)) and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            changed.add(inner.id)
        if isinstance(inner, ast.Subscript) and isinstance(inner.ctx, (ast.Store, ast.Del)) and isinstance(inner.value, ast.Name):
            changed.add(inner.value.id)
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and isinstance(inner.func.value, ast.Name) and inner.func.attr in MUTATORS:
            changed.add(inner.func.value.id)
class Reader:
    def __init__(self):
        self.count = 0
    def read(self, node, depth=0):
        self.count += 1
        if depth > 200 or self.count > 50000:
            raise Unknown(node, "is nested too deeply")
        method = getattr(self, "read_" + type(node).__name__, None)
        if method is None:
            raise Unknown(node, "is not a literal value")
        return method(node, depth + 1)
    def read_Constant(self, node, depth):
        value = node.value
        if value is None or isinstance(value, (str, bool, int)):
            return value
        if isinstance(value, float) and value == value and value not in (float("inf"), float("-inf")):
            return value
        raise Unknown(node, "is a value that JSON does not have")
    def items(self, nodes, depth):
        out = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                inner = self.read(node.value, depth)
                out.extend(list(inner) if isinstance(inner, (list, dict)) else self.no(node))
            else:
                out.append(self.read(node, depth))
        return out
    def no(self, node):
        raise Unknown(node, "is not a literal value")
    def read_List(self, node, depth):
        return self.items(node.elts, depth)
    read_Tuple = read_List
    def read_Dict(self, node, depth):
        out = {}
        for key, value in zip(node.keys, node.values):
            if key is None:
                inner = self.read(value, depth)
                out.update(inner if isinstance(inner, dict) else self.no(value))
            else:
                name = self.read(key, depth)
                if isinstance(name, (list, dict)):
                    self.no(key)
                out[name] = self.read(value, depth)
        return out
    def read_Name(self, node, depth):
        if node.id in changed:
            raise Unknown(node, "changes after it was assigned")
        if node.id not in values:
            raise Unknown(node, "is not a literal of this file")
        return self.read(values[node.id], depth)
    def read_UnaryOp(self, node, depth):
        value = self.read(node.operand, depth)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.no(node)
        if isinstance(node.op, ast.USub):
            return -value
        return value if isinstance(node.op, ast.UAdd) else self.no(node)
    def read_BinOp(self, node, depth):
        left, right = self.read(node.left, depth), self.read(node.right, depth)
        if isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, (str, list)):
            return left + right
        if isinstance(node.op, ast.BitOr) and isinstance(left, dict) and isinstance(right, dict):
            return {**left, **right}
        if isinstance(left, (int, float)) and isinstance(right, (int, float)) and max(abs(left), abs(right)) < 1e12:
            for kind, work in ((ast.Add, lambda a, b: a + b), (ast.Sub, lambda a, b: a - b), (ast.Mult, lambda a, b: a * b)):
                if isinstance(node.op, kind):
                    return work(left, right)
        return self.no(node)
    def read_JoinedStr(self, node, depth):
        parts = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                if part.format_spec is not None or part.conversion not in (-1, 115):
                    self.no(part)
                value = self.read(part.value, depth)
                if isinstance(value, (list, dict)):
                    self.no(part)
                parts.append(str(value))
            else:
                parts.append(str(self.read(part, depth)))
        return "".join(parts)
    def read_Subscript(self, node, depth):
        value, key = self.read(node.value, depth), self.read(node.slice, depth)
        try:
            return value[key]
        except (KeyError, IndexError, TypeError):
            raise Unknown(node, "is not a literal value")
    def read_Call(self, node, depth):
        func = node.func
        if isinstance(func, ast.Name) and func.id in ("list", "tuple", "sorted", "set", "frozenset") and len(node.args) == 1 and not node.keywords and func.id not in values:
            argument = node.args[0]
            value = self.items(argument.elts, depth) if isinstance(argument, ast.Set) else self.read(argument, depth)
            if not isinstance(value, (list, dict)):
                self.no(node)
            value = list(value)
            try:
                return sorted(value) if func.id in ("sorted", "set", "frozenset") else value
            except TypeError:
                self.no(node)
        if isinstance(func, ast.Attribute) and not node.keywords:
            try:
                value = self.read(func.value, depth)
            except Unknown:
                return self.no(node)
            if func.attr in ("keys", "values") and isinstance(value, dict) and not node.args:
                return list(getattr(value, func.attr)())
            if func.attr == "join" and isinstance(value, str) and len(node.args) == 1:
                parts = self.read(node.args[0], depth)
                if isinstance(parts, list) and all(isinstance(part, str) for part in parts):
                    return value.join(parts)
        return self.no(node)
members = {}
text = source.decode("utf-8", "replace")
for node in tree.body:
    name, value = assignment(node)
    if name not in names:
        continue
    try:
        plain = Reader().read(value)
        members[name] = {"value": json.loads(json.dumps(plain, allow_nan=False)), "line": node.lineno, "column": node.col_offset + 1}
    except Unknown as unknown:
        segment = (ast.get_source_segment(text, unknown.node) or "").split("\\n")[0][:60]
        what = ": " + segment if segment and unknown.node is not value else ""
        fail(name + " is not a literal value" + what + (" " + unknown.why if what and unknown.why != "is not a literal value" else ""), unknown.node,
            "Write plain strings, numbers, lists and dicts, or names of such constants of this file: it is read without being run.")
    except (ValueError, TypeError, RecursionError, MemoryError):
        fail(name + " is not a literal value", value, "Write plain strings, numbers, lists and dicts: it is read without being run.")
stdlib = getattr(sys, "stdlib_module_names", frozenset(sys.builtin_module_names))
def guarded(handlers):
    for handler in handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(kind is None or (isinstance(kind, ast.Name) and kind.id in ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")) for kind in kinds):
            return True
    return False
${PYTHON_EFFECTS}def is_main(node):
    return isinstance(node, ast.If) and any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test))
def is_quiet(node):
    if isinstance(node, ast.If) and not is_main(node):
        return all(is_quiet(part) for part in node.body + node.orelse)
    if isinstance(node, ast.Try):
        parts = node.body + node.orelse + node.finalbody + [part for handler in node.handlers for part in handler.body]
        return not works(node) or all(is_quiet(part) for part in parts)
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Raise)) or not works(node)
def works(node):
    try:
        return acts(node)
    except RecursionError:
        return True
execute = None
calls_execute = False
for node in tree.body:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == "execute":
        arguments = node.args
        positional = arguments.posonlyargs + arguments.args
        execute = {"required": len(positional) - len(arguments.defaults), "keywords": sum(1 for default in arguments.kw_defaults if default is None), "line": node.lineno}
    elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not is_main(node):
        calls_execute = calls_execute or any(isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "execute" for part in ast.walk(node))
used = {part.id for part in ast.walk(tree) if isinstance(part, ast.Name)}
loads = [alias.name.split(".")[0] for node in tree.body if isinstance(node, ast.Import) for alias in node.names if (alias.asname or alias.name.split(".")[0]) not in used]
imports = []
def visit(node, optional):
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.split(".")[0] not in stdlib:
                imports.append({"module": alias.name, "names": [], "level": 0, "line": node.lineno, "optional": optional})
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if node.level > 0 or module.split(".")[0] not in stdlib:
            imports.append({"module": module, "names": [alias.name for alias in node.names], "level": node.level, "line": node.lineno, "optional": optional})
    elif isinstance(node, ast.Try):
        for part in node.body:
            visit(part, optional or guarded(node.handlers))
        for part in node.orelse + node.finalbody + [inner for handler in node.handlers for inner in handler.body]:
            visit(part, optional)
    elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    else:
        for part in ast.iter_child_nodes(node):
            visit(part, optional)
try:
    visit(tree, False)
except RecursionError:
    pass
flags = sorted({node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in ("--params", "--project-path")})
print(json.dumps({"members": members, "facts": {
    "execute": execute, "callsExecute": calls_execute, "main": any(is_main(node) for node in tree.body),
    "quiet": all(is_main(node) or (is_quiet(node) and not isinstance(node, ast.Raise)) for node in tree.body),
    "works": any(works(node) for node in tree.body if not is_main(node)),
    "imports": imports, "flags": flags, "loads": loads}}))
`;

const DEFAULT_TIMEOUT_MS = 10_000;
const MAX_OUTPUT = 4 * 1024 * 1024;

const TEXT_BLOCK = /("""|''')[\s\S]*?\1/g;
const PLAIN_WORK =
  /^(?!(?:if|elif|while|not|lambda|class|def|from|import)\b)[A-Za-z_][\w.]*\s*\(|^(?:print|exec|while)\b/m;

/** True if a line of the text calls something when the module runs, so that no interpreter need decide it. */
export function plainlyRuns(text: string): boolean {
  return PLAIN_WORK.test(text.replaceAll(TEXT_BLOCK, '""'));
}

/** Reads the constants of a Python tool and what its module defines, runs and imports, without running it. */
export async function readPythonSource(
  text: string,
  path: string,
  options: PythonOptions,
): Promise<RawToolMetadata> {
  const describes = Object.keys(TOOL_CONSTANTS).some((name) => text.includes(name));
  if (!describes && !text.includes('def ') && plainlyRuns(text)) {
    return { value: {}, locate: () => ({ path, line: 1 }) };
  }
  const answer = parseJson(await runPython(text, path, options));
  if (!isJsonObject(answer)) throw pythonFailed(path, 'it printed no result');
  const { error, hint, line, column } = answer;
  if (typeof error === 'string') {
    const place = { path, line: Number(line), column: Number(column) };
    throw toolMalformed(error, place, typeof hint === 'string' ? hint : undefined);
  }
  const members = isJsonObject(answer['members']) ? answer['members'] : {};
  const found = Object.entries(members).flatMap(([name, entry]) => {
    const member = TOOL_CONSTANTS[name];
    return member !== undefined && isJsonObject(entry) && entry['value'] !== null
      ? [{ member, entry }]
      : [];
  });
  return {
    value: Object.fromEntries(found.map(({ member, entry }) => [member, entry['value']])),
    locate: (key) => {
      const entry = found.find(({ member }) => member === key)?.entry;
      return entry === undefined
        ? { path, line: 1 }
        : { path, line: Number(entry['line']), column: Number(entry['column']) };
    },
    facts: factsOf(answer['facts']),
  };
}

function factsOf(value: JsonValue | undefined): SourceFacts {
  const facts: JsonObject = isJsonObject(value) ? value : {};
  const execute = facts['execute'];
  const imports = Array.isArray(facts['imports']) ? facts['imports'] : [];
  const flags = Array.isArray(facts['flags']) ? facts['flags'] : [];
  const hasMain = facts['main'] === true;
  return {
    flags: flags.map(String),
    imports: imports.filter((one) => isJsonObject(one)).map(importOf),
    loads: Array.isArray(facts['loads']) ? facts['loads'].map(String) : [],
    runsSomething: hasMain || facts['quiet'] === false || facts['works'] === true,
    hasMain: hasMain || facts['callsExecute'] === true || facts['quiet'] === false,
    ...(isJsonObject(execute)
      ? {
          execute: {
            required: Number(execute['required']),
            keywords: Number(execute['keywords']),
            line: Number(execute['line']),
          },
        }
      : {}),
  };
}

function importOf(one: JsonObject): ModuleImport {
  const names = Array.isArray(one['names']) ? one['names'].map(String) : [];
  const module = typeof one['module'] === 'string' ? one['module'] : '';
  return {
    module,
    names,
    level: Number(one['level']),
    line: Number(one['line']),
    optional: one['optional'] === true,
  };
}

async function runPython(text: string, path: string, options: PythonOptions): Promise<string> {
  const {
    python = 'python3',
    searchPath = process.env['PATH'],
    timeoutMs = DEFAULT_TIMEOUT_MS,
  } = options;
  const child = spawn(python, ['-I', '-c', PYTHON, ...Object.keys(TOOL_CONSTANTS)], {
    // The caller's environment must not affect the interpreter.
    env: { PATH: absoluteSearchPath(searchPath ?? ''), PYTHONUTF8: '1' },
    stdio: ['pipe', 'pipe', 'ignore'],
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
  });
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    child.on('error', (error) => reject(missingPython(error, path, python)));
    child.stdout.on('data', (chunk: Buffer) => {
      length += chunk.length;
      if (length <= MAX_OUTPUT) chunks.push(chunk);
      else child.kill('SIGKILL');
    });
    // The interpreter may exit before it has read everything; the exit status shows why.
    child.stdin.on('error', () => undefined);
    child.on('close', (code, signal) => {
      if (code === 0) resolve(Buffer.concat(chunks).toString('utf8'));
      else
        reject(
          pythonFailed(
            path,
            signal === null
              ? `it exited with status ${code}`
              : 'it exceeded its time or output limit',
          ),
        );
    });
    child.stdin.end(text);
  });
}

const HEADER_HINT = 'A header comment between "# rye:tool" and "# /rye:tool" needs no Python.';

function missingPython(error: Error, path: string, python: string): RyeError {
  if (systemCodeOf(error) !== 'ENOENT') return pythonFailed(path, error.message);
  return new RyeError(
    'tool_failed',
    `${python} is not installed, so this tool's metadata cannot be read`,
    {
      location: { path },
      hint: `Install Python 3. ${HEADER_HINT}`,
      cause: error,
    },
  );
}

function pythonFailed(path: string, reason: string): RyeError {
  return new RyeError('tool_failed', `python3 could not read this tool's metadata: ${reason}`, {
    location: { path },
    hint: HEADER_HINT,
  });
}
