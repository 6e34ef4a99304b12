import { RyeError } from '../../core/errors.ts';
import type { JsonObject, JsonValue } from '../../core/json.ts';
import type { ToolRuntime } from '../../items/tool-runtime.ts';
import { type Command, shellOf } from '../script.ts';

/** The values of one call for the runtime of a tool. */
export interface RuntimeCall {
  readonly id: string;
  /** The verified copy in the private folder. */
  readonly file: string;
  /** Its folder, with the files that the tool pins. */
  readonly folder: string;
  readonly projectPath: string;
  readonly input: JsonObject;
  /** Values that must not be visible outside of the call, such as in the list of processes. */
  readonly secrets: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
}

/**
 * Calls `execute(params, project_path)` of a Python file. Only the result goes to stdout; other output of the tool and its
 * children goes to stderr, because a stray line would turn the JSON into text. An `execute` that exits instead of returning is a failure.
 */
const PYTHON_FUNCTION = `
import asyncio, importlib.util, inspect, json, os, sys
out = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
sys.stdout = sys.stderr
path, project = sys.argv[1], sys.argv[2]
sys.argv = [path]
sys.path.insert(0, os.path.dirname(path))
params = json.loads(sys.stdin.buffer.read() or b"{}")
name = os.path.splitext(os.path.basename(path))[0]
spec = importlib.util.spec_from_file_location(name, path)
module = importlib.util.module_from_spec(spec)
sys.modules[name] = module
spec.loader.exec_module(module)
execute = getattr(module, "execute", None)
if not callable(execute):
    sys.exit("the file defines no execute(params, project_path)")
signature = inspect.signature(execute)
positional = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
takes_any = any(p.kind == p.VAR_POSITIONAL for p in signature.parameters.values())
arguments = [params, project] if takes_any else [params, project][:len(positional)]
async def wait(value):
    return await value
try:
    result = execute(*arguments)
    if inspect.isawaitable(result):
        result = asyncio.run(wait(result))
except SystemExit as exit:
    if exit.code in (None, 0):
        sys.exit("execute() ended the process instead of returning a result")
    raise
try:
    text = json.dumps({} if result is None else result, default=str, allow_nan=False)
except ValueError as error:
    sys.exit("the result of execute() is not JSON: " + str(error))
out.write(text + "\\n")
out.flush()
`;

/** Returns the command for a tool with its own runtime; `plain` is the command without one. */
export function runtimeCommand(
  runtime: ToolRuntime | undefined,
  plain: Command,
  call: RuntimeCall,
): Command {
  if (runtime === undefined) return plain;
  switch (runtime.how) {
    case 'function':
      return {
        program: plain.program,
        args: ['-B', '-c', PYTHON_FUNCTION, call.file, call.projectPath],
      };
    case 'arguments':
      return {
        ...plain,
        args: [
          ...plain.args,
          '--project-path',
          call.projectPath,
          ...(runtime.params ? ['--params', visible(call, JSON.stringify(call.input))] : []),
        ],
      };
    case 'project':
      return { ...plain, args: [...plain.args, call.projectPath] };
    case 'words':
      return { program: word(plain.program, call), args: plain.args.map((arg) => word(arg, call)) };
    case 'shell':
      return {
        program: shellOf('.bash'),
        args: ['-c', shellText(runtime.script, call), call.file, call.projectPath],
      };
    case 'http':
      throw new RyeError('internal', `${call.id} is a request, not a program`);
  }
}

const WHOLE = /^\{([A-Za-z_]\w*)\}$/;
const PARAMETER = /\{([A-Za-z_]\w*)\}/g;
const VARIABLE = /\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}/g;
/** Interpreters that Rye OS finds for its runtimes. */
const INTERPRETERS: Readonly<Record<string, string>> = {
  RYE_PYTHON: 'python3',
  RYE_KERNEL_PYTHON: 'python3',
  RYE_NODE: process.execPath,
  RYE_BASH: 'bash',
};

/** One word of an older manifest's command: variables first, then parameters, in one pass each. */
function word(text: string, call: RuntimeCall): string {
  const plain = text.replaceAll(VARIABLE, (_all, name: string, fallback?: string) => {
    const value = INTERPRETERS[name] ?? call.env[name];
    if (value !== undefined && isSecretName(name)) throw secretWord(call.id, name);
    return value === undefined || value === '' ? (fallback ?? '') : value;
  });
  const whole = WHOLE.exec(plain)?.[1];
  const filled = plain.replaceAll(PARAMETER, (all, name: string) => valueOf(name, call) ?? all);
  // an optional parameter that is absent leaves its word empty, as it did in Rye OS
  return whole !== undefined && filled === plain && !plain.includes('params') ? '' : filled;
}

function isSecretName(name: string): boolean {
  return /KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL/i.test(name);
}

function secretWord(id: string, name: string): RyeError {
  return new RyeError(
    'invalid_input',
    `${id} would put ${name} on a command line, which every process of this machine can read`,
    { hint: 'Read it from the environment in the program, and list its name in env.' },
  );
}

function valueOf(name: string, call: RuntimeCall): string | undefined {
  switch (name) {
    case 'tool_dir':
    case 'tool_parent':
      return call.folder;
    case 'tool_path':
      return call.file;
    case 'project':
    case 'project_path':
      return call.projectPath;
    case 'params_json':
      return visible(call, JSON.stringify(call.input));
    default:
      return Object.hasOwn(call.input, name)
        ? visible(call, parameterText(call.input[name]))
        : undefined;
  }
}

/** A parameter as one word: text as it is, anything else as JSON. */
export function parameterText(value: JsonValue | undefined): string {
  return typeof value === 'string' ? value : JSON.stringify(value ?? null);
}

function visible({ id, secrets }: RuntimeCall, text: string): string {
  const shows = secrets.some((secret) => secret !== '' && text.includes(secret));
  if (!shows && !text.includes('\0')) return text;
  throw new RyeError(
    'invalid_input',
    `${id} takes its parameters on the command line, which cannot carry ${shows ? 'a secret' : 'a NUL byte'}`,
    { hint: 'Let the tool read its parameters as JSON from stdin.' },
  );
}

/** Each placeholder becomes one single-quoted word, so that no value is read as shell code. */
function shellText(script: string, call: RuntimeCall): string {
  return script.replaceAll(/(\$?)\{([A-Za-z_]\w*)\}/g, (all, dollar: string, name: string) => {
    if (dollar !== '') return all;
    const value = valueOf(name, call);
    return value === undefined ? all : `'${value.replaceAll("'", `'\\''`)}'`;
  });
}
