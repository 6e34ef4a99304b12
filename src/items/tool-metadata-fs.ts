import { spawn } from 'node:child_process';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import { isJsonObject, parseJson } from '../core/json.ts';
import { absoluteSearchPath } from '../core/search-path.ts';
import { sha256Hex } from '../trust/keys.ts';
import { normalizeNewlines } from './source-text.ts';
import { readToolHeader } from './tool-header.ts';
import type { RawToolMetadata, ToolMetadata } from './tool-metadata.ts';
import { checkToolMetadata, TOOL_CONSTANTS, toolKind, toolMalformed } from './tool-metadata.ts';
import { parseYamlMapping } from './yaml-source.ts';

export interface ToolReadOptions {
  /** The interpreter that reads Python's syntax tree. Default `python3`. */
  readonly python?: string;
  /** Search path for it. Default: this process's. */
  readonly searchPath?: string;
  readonly timeoutMs?: number;
}

/**
 * Reads a tool's metadata from its text without running it: a header comment in any language, else a YAML manifest, else the constants in the
 * syntax tree of JavaScript or Python. Other scripts without a header declare nothing. Errors: `tool_malformed` with the place in the file,
 * `tool_failed` where Python is missing.
 */
export async function readToolMetadata(
  text: string,
  path: string,
  options?: ToolReadOptions,
): Promise<ToolMetadata> {
  if (options !== undefined) return await readMetadata(text, path, options);
  const key = `${sha256Hex(text)} ${path}`;
  const known = remembered.get(key);
  if (known !== undefined) return known;
  const metadata = await readMetadata(text, path, {});
  if (remembered.size >= REMEMBERED_TOOLS) remembered.clear();
  remembered.set(key, metadata);
  return metadata;
}

const REMEMBERED_TOOLS = 256;
/** By the text's hash and the path, so that a process that prepares thread after thread reads each tool once. */
const remembered = new Map<string, ToolMetadata>();

async function readMetadata(
  text: string,
  path: string,
  options: ToolReadOptions,
): Promise<ToolMetadata> {
  const normalized = normalizeNewlines(text);
  const raw = readToolHeader(normalized, path) ?? (await readOwnForm(normalized, path, options));
  return checkToolMetadata(raw, path);
}

async function readOwnForm(
  text: string,
  path: string,
  options: ToolReadOptions,
): Promise<RawToolMetadata> {
  const kind = toolKind(path);
  if (kind === 'manifest') {
    return parseYamlMapping({ path, text, line: 1, column: 1 }, 'tool_malformed');
  }
  if (kind === 'javascript') {
    const { readJsConstants } = await import('./tool-constants.ts');
    return readJsConstants(text, path);
  }
  if (kind === 'python') return readPythonConstants(text, path, options);
  return { value: {}, locate: () => ({ path, line: 1 }) };
}

/**
 * Reads source on stdin and prints the literal top-level assignments to the names given as arguments. `ast` only parses; nothing is imported or
 * run, and -I keeps the working directory and the user's site packages out.
 */
const PYTHON = `
import ast, json, sys
names = set(sys.argv[1:])
source = sys.stdin.buffer.read()
def fail(message, node):
    print(json.dumps({"error": message, "line": getattr(node, "lineno", 1) or 1, "column": (getattr(node, "col_offset", 0) or 0) + 1}))
    sys.exit(0)
try:
    tree = ast.parse(source)
except SyntaxError as error:
    print(json.dumps({"error": "this is not Python: " + str(error.msg), "line": error.lineno or 1, "column": error.offset or 1}))
    sys.exit(0)
except (ValueError, RecursionError, MemoryError) as error:
    fail("this is not Python: " + str(error), None)
members = {}
for node in tree.body:
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        target = node.target
    else:
        continue
    if not isinstance(target, ast.Name) or target.id not in names:
        continue
    try:
        value = ast.literal_eval(node.value)
        text = json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        fail(target.id + " is not a literal value", node.value)
    members[target.id] = {"value": json.loads(text), "line": node.lineno, "column": node.col_offset + 1}
print(json.dumps({"members": members}))
`;

const DEFAULT_TIMEOUT_MS = 10_000;
const MAX_OUTPUT = 4 * 1024 * 1024;

async function readPythonConstants(
  text: string,
  path: string,
  options: ToolReadOptions,
): Promise<RawToolMetadata> {
  const mentioned = Object.keys(TOOL_CONSTANTS).some((name) => text.includes(name));
  if (!mentioned) return { value: {}, locate: () => ({ path, line: 1 }) };
  const answer = parseJson(await runPython(text, path, options));
  if (!isJsonObject(answer)) throw pythonFailed(path, 'it gave no answer');
  const { error, line, column } = answer;
  if (typeof error === 'string') {
    throw toolMalformed(error, { path, line: Number(line), column: Number(column) });
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
  };
}

async function runPython(text: string, path: string, options: ToolReadOptions): Promise<string> {
  const {
    python = 'python3',
    searchPath = process.env['PATH'],
    timeoutMs = DEFAULT_TIMEOUT_MS,
  } = options;
  const child = spawn(python, ['-I', '-c', PYTHON, ...Object.keys(TOOL_CONSTANTS)], {
    // The tool's author must not be able to steer the interpreter through the caller's environment.
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
    // The interpreter may end before it has read everything; the exit status tells what happened.
    child.stdin.on('error', () => undefined);
    child.on('close', (code, signal) => {
      if (code === 0) resolve(Buffer.concat(chunks).toString('utf8'));
      else
        reject(
          pythonFailed(
            path,
            signal === null ? `it ended with status ${code}` : 'it took too long or said too much',
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
