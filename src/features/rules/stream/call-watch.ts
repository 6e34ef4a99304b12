import type { StreamMatcher } from '../../../kernel/policy/regex-stream.ts';
import { type CallPath, callPath, isPathKey } from './paths.ts';
import type { StreamRule } from './rules.ts';

/** A rule that a tool call breaks. */
export interface CallHit {
  readonly rule: StreamRule;
  readonly tool: string;
  readonly path?: string;
}

export interface CallWatchOptions {
  /** The rules that may match in this answer. */
  readonly rules: readonly StreamRule[];
  readonly projectPath: string;
  /** Opens a matcher for some rules. */
  readonly open: (rules: readonly number[]) => StreamMatcher;
  /** Names by which rules may call a tool, lower case, the one to show first. */
  readonly namesOf: (tool: string) => readonly string[];
  readonly onHit: (hit: CallHit) => void;
  /** A finished string value, for rules that another engine checks. */
  readonly onValue?:
    | ((text: string, decide: (rule: StreamRule) => CallHit | undefined) => void)
    | undefined;
  /** Characters of a value that `onValue` gets at most. */
  readonly valueLimit: number;
  /** The texts of a complete call for each file that it names, for rules that judge texts as a whole. */
  readonly onFile?: ((file: CallFile) => void) | undefined;
}

/** The texts that a call has for one file, or the call as a whole. */
export interface CallFile {
  readonly parts: readonly string[];
  readonly paths: readonly CallPath[];
  readonly hitOf: (rule: StreamRule) => CallHit | undefined;
}

/** The primary action, as a model is offered it and by its id: what it runs is named by an argument. */
const EXECUTE: ReadonlySet<string> = new Set(['rye_execute', 'rye/execute']);
const ITEM_ID = 'item_id';
const MAX_FACT_LENGTH = 4096;

/** The members of one object of the arguments: as a rule, the members for one file. */
class FileScope {
  readonly parent: FileScope | undefined;
  readonly paths: CallPath[] = [];
  /** Rules that matched before the path was known that decides whether they count. */
  readonly waiting = new Set<StreamRule>();
  /** Its texts, and the texts of objects in it that name no file. */
  readonly texts: string[] = [];

  constructor(parent: FileScope | undefined) {
    this.parent = parent;
  }

  get effectivePaths(): readonly CallPath[] {
    return this.paths.length > 0 ? this.paths : (this.parent?.effectivePaths ?? []);
  }
}

/**
 * Watches the arguments of one tool call while they are written: each string value is a separate text, decoded,
 * and belongs to the file that its object names. A match counts once tool and path are known to be in the rule's
 * scope, in either order. Text that an edit removes is not checked.
 */
export class CallWatch implements JsonStringSink {
  readonly #options: CallWatchOptions;
  readonly #json = new JsonStrings(this);
  readonly #root = new FileScope(undefined);
  #scope = this.#root;
  #depth = 0;
  #names: readonly string[];
  readonly #isExecute: boolean;
  #candidates: readonly number[];
  readonly #hasHit = new Set<StreamRule>();
  /** Objects that ended before the tool was known. */
  readonly #ended: FileScope[] = [];
  /** Objects with a file, the call as a whole first. */
  readonly #files = [this.#root];
  #matcher: StreamMatcher | undefined;
  /** Collects the current value if it is a path or an item id. */
  #fact: { readonly kind: 'path' | 'item'; text: string } | undefined;
  #value: string | undefined;
  /** Collects the current value, all of it. */
  #whole: string | undefined;
  #isOver = false;
  /** Characters of arguments seen. */
  length = 0;

  constructor(tool: string, options: CallWatchOptions) {
    this.#options = options;
    this.#names = options.namesOf(tool);
    this.#isExecute = this.#names.some((name) => EXECUTE.has(name));
    this.#candidates = this.#rulesForTool();
  }

  write(json: string): void {
    if (this.#isOver) return;
    this.length += json.length;
    this.#json.write(json);
  }

  /** The arguments are complete: what waits for a path that never came does not count. */
  end(): void {
    if (this.#isOver) return;
    this.#json.finish();
    this.#recheck(this.#root);
    this.#isOver = true;
    this.#giveFiles();
  }

  #giveFiles(): void {
    const { onFile } = this.#options;
    if (!onFile) return;
    for (const scope of this.#files) {
      // a call that has only texts of other files is judged by those
      if (scope === this.#root && scope.texts.length === 0 && this.#files.length > 1) continue;
      onFile({
        parts: scope.texts,
        paths: scope.effectivePaths,
        hitOf: (rule) => this.#hitIn(scope, rule),
      });
    }
  }

  openObject(): void {
    this.#depth += 1;
    if (this.#depth > 1) this.#scope = new FileScope(this.#scope);
  }

  closeObject(): void {
    this.#depth -= 1;
    const { parent, waiting, paths, texts } = this.#scope;
    if (!parent) return;
    // without its own path it describes the file that the surrounding object names, maybe later
    if (paths.length === 0) {
      for (const rule of waiting) parent.waiting.add(rule);
      for (const text of texts) parent.texts.push(text);
    } else {
      this.#files.push(this.#scope);
      if (this.#isExecute && waiting.size > 0) this.#ended.push(this.#scope);
    }
    this.#scope = parent;
    if (waiting.size > 0) this.#recheck(parent);
  }

  beginString(key: string): void {
    if (isPathKey(key)) this.#fact = { kind: 'path', text: '' };
    else if (this.#isExecute && this.#depth === 1 && key === ITEM_ID) {
      this.#fact = { kind: 'item', text: '' };
    } else if (!isReplacedText(key) && this.#candidates.length > 0) {
      this.#matcher = this.#options.open(this.#candidates);
      if (this.#options.onValue) this.#value = '';
      if (this.#options.onFile) this.#whole = '';
    }
  }

  text(piece: string): void {
    if (this.#fact) {
      if (this.#fact.text.length < MAX_FACT_LENGTH) this.#fact.text += piece;
      return;
    }
    const hits = this.#matcher?.feed(piece) ?? [];
    for (const { rule } of hits) this.#matched(rule);
    if (this.#value !== undefined && this.#value.length < this.#options.valueLimit) {
      this.#value += piece;
    }
    if (this.#whole !== undefined) this.#whole += piece;
  }

  endString(): void {
    if (this.#fact) this.#learn(this.#fact.kind, this.#fact.text);
    for (const rule of this.#matcher?.end() ?? []) this.#matched(rule);
    if (this.#value !== undefined) {
      const scope = this.#scope;
      this.#options.onValue?.(this.#value, (rule) => this.#hitIn(scope, rule));
    }
    if (this.#whole !== undefined) this.#scope.texts.push(this.#whole);
    this.#fact = undefined;
    this.#matcher = undefined;
    this.#value = undefined;
    this.#whole = undefined;
  }

  #learn(kind: 'path' | 'item', text: string): void {
    if (kind === 'item') {
      this.#names = this.#options.namesOf(text);
      this.#candidates = this.#rulesForTool();
      for (const scope of this.#ended) this.#recheck(scope);
    } else {
      this.#scope.paths.push(callPath(text, this.#options.projectPath));
    }
    this.#recheck(this.#scope);
  }

  #matched(index: number): void {
    const rule = this.#options.rules.find((one) => one.index === index);
    // a call does not run before it is complete, and is judged then
    if (!rule || rule.isEarly || this.#hasHit.has(rule)) return;
    this.#scope.waiting.add(rule);
    this.#recheck(this.#scope);
  }

  #recheck(scope: FileScope): void {
    for (const rule of scope.waiting) {
      const hit = this.#hitIn(scope, rule);
      if (!hit || this.#hasHit.has(rule)) continue;
      scope.waiting.delete(rule);
      this.#hasHit.add(rule);
      this.#options.onHit(hit);
    }
  }

  /** The hit, if the tool and a path are in the rule's scope as far as they are known. */
  #hitIn(scope: FileScope, rule: StreamRule): CallHit | undefined {
    const paths = scope.effectivePaths;
    const covers = (test: (path: string) => boolean): boolean =>
      paths.some(({ candidates }) => candidates.some(test));
    if (rule.globs.length > 0 && !rule.globs.some(covers)) return undefined;
    const isWatched = rule.scope.tools.some(
      ({ name, matchesPath }) =>
        (name === undefined || this.#names.includes(name)) && (!matchesPath || covers(matchesPath)),
    );
    if (!isWatched) return undefined;
    const [path] = paths;
    return { rule, tool: this.#names[0] ?? '', ...(path ? { path: path.shown } : {}) };
  }

  /** Rules that may be about this tool. What `rye_execute` runs may be named after its parameters. */
  #rulesForTool(): readonly number[] {
    const isOpen = this.#isExecute;
    return this.#options.rules
      .filter(({ scope }) =>
        scope.tools.some(({ name }) => isOpen || name === undefined || this.#names.includes(name)),
      )
      .map(({ index }) => index);
  }
}

/** True for members that hold the text being replaced. Rules ignore them. */
function isReplacedText(key: string): boolean {
  return /^old[_A-Z-]|^old$|^search$/.test(key);
}

/** Receives the parts that {@link JsonStrings} finds, in the order of the text. */
export interface JsonStringSink {
  openObject(): void;
  closeObject(): void;
  /** A string value begins. `key` is that of the nearest member; values of a list have the list's. */
  beginString(key: string): void;
  /** Decoded text of the string that began last. */
  text(piece: string): void;
  endString(): void;
}

const MAX_KEY_LENGTH = 256;
const ESCAPES: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };
/** Everything that ends a run of plain characters. */
const SPECIAL = /["\\]/g;

interface Container {
  readonly isObject: boolean;
  /** Key of the member that is being read, or of the list as a whole. */
  key: string;
}

/**
 * Decodes the string values of a JSON text that comes in pieces, cut anywhere. Costs O(piece) and keeps no values;
 * other text is skipped, because a call with such arguments is never run.
 */
export class JsonStrings {
  readonly #sink: JsonStringSink;
  readonly #containers: Container[] = [];
  #mode: 'between' | 'key' | 'value' = 'between';
  #expectsKey = false;
  #key = '';
  /** An escape sequence that the last piece cut, from its backslash on. */
  #escape = '';

  constructor(sink: JsonStringSink) {
    this.#sink = sink;
  }

  write(piece: string): void {
    let at = 0;
    while (at < piece.length) {
      if (this.#mode === 'between') at = this.#structure(piece, at);
      else if (this.#escape !== '') at = this.#escaped(piece, at);
      else at = this.#plain(piece, at);
    }
  }

  /** The text is over: ends a string that it left open, and its objects. */
  finish(): void {
    if (this.#mode === 'value') this.#sink.endString();
    this.#mode = 'between';
    for (let open = this.#containers.pop(); open; open = this.#containers.pop()) {
      if (open.isObject) this.#sink.closeObject();
    }
  }

  #structure(piece: string, at: number): number {
    switch (piece.charAt(at)) {
      case '"':
        this.#beginString();
        break;
      case '{':
        this.#containers.push({ isObject: true, key: '' });
        this.#expectsKey = true;
        this.#sink.openObject();
        break;
      case '[':
        this.#containers.push({ isObject: false, key: this.#containers.at(-1)?.key ?? '' });
        this.#expectsKey = false;
        break;
      case '}':
      case ']':
        if (this.#containers.pop()?.isObject === true) this.#sink.closeObject();
        this.#expectsKey = false;
        break;
      case ',':
        this.#expectsKey = this.#containers.at(-1)?.isObject === true;
        break;
      case ':':
        this.#expectsKey = false;
        break;
      default:
        break;
    }
    return at + 1;
  }

  #beginString(): void {
    if (this.#expectsKey) {
      this.#mode = 'key';
      this.#key = '';
      return;
    }
    this.#mode = 'value';
    this.#sink.beginString(this.#containers.at(-1)?.key ?? '');
  }

  #plain(piece: string, from: number): number {
    SPECIAL.lastIndex = from;
    const found = SPECIAL.exec(piece);
    const end = found?.index ?? piece.length;
    if (end > from) this.#emit(piece.slice(from, end));
    if (!found) return end;
    if (found[0] === '\\') this.#escape = '\\';
    else this.#endString();
    return end + 1;
  }

  #escaped(piece: string, at: number): number {
    this.#escape += piece.charAt(at);
    const kind = this.#escape.charAt(1);
    if (kind === 'u' && this.#escape.length < 6) return at + 1;
    if (kind === 'u') {
      const unit = Number.parseInt(this.#escape.slice(2), 16);
      this.#emit(Number.isNaN(unit) ? '\ufffd' : String.fromCharCode(unit));
    } else {
      this.#emit(ESCAPES[kind] ?? kind);
    }
    this.#escape = '';
    return at + 1;
  }

  #emit(text: string): void {
    if (this.#mode === 'value') this.#sink.text(text);
    else if (this.#key.length < MAX_KEY_LENGTH) this.#key += text;
  }

  #endString(): void {
    if (this.#mode === 'value') {
      this.#sink.endString();
    } else {
      const container = this.#containers.at(-1);
      if (container) container.key = this.#key;
    }
    this.#mode = 'between';
  }
}
