import {
  type Alias,
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type ParsedNode,
  parse,
  parseDocument,
  type YAMLMap,
} from 'yaml';
import { messageOf, RyeError } from '../core/errors.ts';
import { blankSignatureLine } from '../trust/signature-line.ts';
import { type ConfigNode, configNodeOf } from './config.ts';

/** Maximum nodes of a YAML file with expanded aliases; protects against alias bombs. */
const MAX_NODES = 100_000;

/** Parses a configuration file's text to nodes with their lines; throws `config_invalid` with file:line:col. */
export function readConfigText(text: string, path: string): ConfigNode {
  try {
    return readDocument(text, path);
  } catch (error) {
    if (error instanceof RyeError) throw error;
    // nesting or cyclic aliases deeper than the stack
    throw invalid(path, `the file cannot be read: ${messageOf(error)}`, { line: 1, column: 1 });
  }
}

/** Parses the value of one `-c key=value` as YAML; throws `config_invalid`. */
export function readOverride(key: string, text: string): ConfigNode {
  const origin = `-c ${key}`;
  try {
    return configNodeOf(parse(text), origin);
  } catch (error) {
    throw new RyeError('config_invalid', `${origin}: ${messageOf(error)}`, {
      hint: 'The value is YAML: a number, true, text, or [a, list].',
      cause: error,
    });
  }
}

function readDocument(signed: string, path: string): ConfigNode {
  const lines = new LineCounter();
  const text = blankSignatureLine(signed, 'yaml');
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const [problem] = [...document.errors, ...document.warnings];
  if (problem !== undefined)
    throw invalid(path, problem.message, positionOf(lines, problem.pos[0]));
  const { contents } = document;
  if (contents === null || (isScalar(contents) && contents.value === null)) {
    return { kind: 'map', members: new Map(), origin: path };
  }
  if (!isMap(contents)) {
    throw invalid(
      path,
      'a configuration file must be a mapping',
      positionOf(lines, contents.range[0]),
    );
  }
  return new NodeReader(document, path, lines).read(contents, 0);
}

/** Converts the nodes of a parsed file to configuration nodes with their lines. */
class NodeReader {
  readonly #document: Document.Parsed;
  readonly #path: string;
  readonly #lines: LineCounter;
  #count = 0;
  /** Finding an anchor takes a walk through the document, and aliases of aliases come here again and again. */
  readonly #targets = new Map<Alias.Parsed, ParsedNode | undefined>();

  constructor(document: Document.Parsed, path: string, lines: LineCounter) {
    this.#document = document;
    this.#path = path;
    this.#lines = lines;
  }

  /** `at` is the offset of the key, for keys without a value. */
  read(node: ParsedNode | null, at: number): ConfigNode {
    const offset = node?.range[0] ?? at;
    this.#count += 1;
    if (this.#count > MAX_NODES) {
      throw this.#fail('the file has too many values, or aliases that multiply them', offset);
    }
    const origin = `${this.#path}:${positionOf(this.#lines, offset).line}`;
    if (node === null) return { kind: 'scalar', value: null, origin };
    if (isAlias(node)) return this.#readAlias(node, offset);
    if (isMap(node)) return this.#readMap(node, origin);
    if (isSeq(node)) {
      return { kind: 'list', items: node.items.map((item) => this.read(item, offset)), origin };
    }
    const { value } = node;
    if (!isSupported(value))
      throw this.#fail('unsupported value: use text, a finite number, true, false or null', offset);
    return { kind: 'scalar', value, origin };
  }

  #readAlias(node: Alias.Parsed, offset: number): ConfigNode {
    if (!this.#targets.has(node))
      this.#targets.set(node, node.resolve(this.#document) as ParsedNode | undefined);
    const target = this.#targets.get(node);
    if (target === undefined) {
      throw this.#fail(`the alias *${node.source} has no anchor before it`, offset);
    }
    return this.read(target, offset);
  }

  #readMap(node: YAMLMap.Parsed, origin: string): ConfigNode {
    const members = new Map<string, ConfigNode>();
    for (const { key, value } of node.items) {
      const name = isScalar(key) ? String(key.value) : '__proto__';
      if (name === '__proto__') throw this.#fail('a key must be a scalar name', key.range[0]);
      members.set(name, this.read(value, key.range[0]));
    }
    return { kind: 'map', members, origin };
  }

  #fail(message: string, offset: number): RyeError {
    return invalid(this.#path, message, positionOf(this.#lines, offset));
  }
}

function isSupported(value: unknown): value is string | number | boolean | null {
  return (
    typeof value === 'string' ||
    typeof value === 'boolean' ||
    value === null ||
    Number.isFinite(value)
  );
}

function positionOf(lines: LineCounter, offset: number): { line: number; column: number } {
  const { line, col } = lines.linePos(offset);
  return { line, column: col };
}

function invalid(
  path: string,
  message: string,
  position: { line: number; column: number },
): RyeError {
  const name = CONFIG_FILE.exec(path)?.[1]?.replaceAll('\\', '/');
  return new RyeError('config_invalid', message, {
    location: { path, ...position },
    hint: `Correct the file${name === undefined ? '.' : `, then run: rye sign config ${name}`}`,
  });
}

const CONFIG_FILE = /(?:^|[\\/])\.ai[\\/]config[\\/](.+)\.ya?ml$/;
