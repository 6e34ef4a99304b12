import type { ConfigNode } from './config.ts';
import { isFlatKey, readFlatScalar } from './flat-yaml.ts';

const EMPTY = /^ *(?:#[^\p{Cc}]*)?$/u;
const MEMBER = /^( *)(\w+):(?: +([^#]*?))?(?: +#[^\p{Cc}]*)?$/u;
const BOOLEAN = /^(?:true|false)$/;

/** Characters of a text that this reads: the parser limits the values of longer ones. */
const MAX_LENGTH = 64 * 1024;

type Members = Map<string, ConfigNode>;

/** A mapping whose members have this indentation. */
interface Level {
  readonly indent: number;
  readonly members: Members;
}

/**
 * Reads a configuration file that has only nested mappings, plain scalars and comments, as most have. Returns exactly what
 * the YAML parser returns, which takes longer to load and to read it than a thread takes to prepare; undefined for all other texts.
 */
export function readFlatConfig(text: string, path: string): ConfigNode | undefined {
  if (text.length > MAX_LENGTH) return undefined;
  const tree = new FlatTree();
  for (const [at, line] of text.split('\n').entries()) {
    if (EMPTY.test(line)) continue;
    const [, { length: indent } = '', name = '', value = ''] = MEMBER.exec(line) ?? [];
    if (!isFlatKey(name)) return undefined;
    if (!tree.add({ indent, name, value, origin: `${path}:${at + 1}` })) return undefined;
  }
  return tree.finish();
}

interface Member {
  readonly indent: number;
  readonly name: string;
  /** Empty if the lines below hold the value. */
  readonly value: string;
  readonly origin: string;
}

/** The mappings that were read so far; each method fails for what only the YAML parser may read. */
class FlatTree {
  readonly #levels: Level[] = [];
  #root: ConfigNode | undefined;
  /** The member whose mapping begins on the next line. */
  #open: Member | undefined;

  add(member: Member): boolean {
    const { indent, name, value, origin } = member;
    if ((this.#root === undefined || this.#open !== undefined) && !this.#begin(member))
      return false;
    while ((this.#levels.at(-1)?.indent ?? 0) > indent) this.#levels.pop();
    const level = this.#levels.at(-1);
    if (level?.indent !== indent || level.members.has(name)) return false;
    if (value === '') this.#open = member;
    // the value of an open member follows and keeps this place
    const scalar = value === '' ? null : readScalar(value);
    if (scalar !== undefined) level.members.set(name, { kind: 'scalar', value: scalar, origin });
    return scalar !== undefined;
  }

  finish(): ConfigNode | undefined {
    return this.#open === undefined ? this.#root : undefined;
  }

  /** Begins the mapping of the open member, or the outermost one, which is not indented. */
  #begin({ indent, origin }: Member): boolean {
    const isDeeper = this.#open === undefined ? indent === 0 : indent > this.#open.indent;
    if (!isDeeper) return false;
    const members: Members = new Map();
    const map: ConfigNode = { kind: 'map', members, origin };
    if (this.#open === undefined) this.#root = map;
    else this.#levels.at(-1)?.members.set(this.#open.name, map);
    this.#levels.push({ indent, members });
    this.#open = undefined;
    return true;
  }
}

function readScalar(text: string): string | number | boolean | undefined {
  return BOOLEAN.test(text) ? text === 'true' : readFlatScalar(text);
}
