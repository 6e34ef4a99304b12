import { expect } from 'vitest';

export interface NaiveCall {
  readonly id: string;
  readonly name: string;
  readonly input: unknown;
}

/** The part of an entry that the model reads; `aside` is nothing. */
export type Said =
  | { readonly kind: 'user'; readonly text: string }
  | { readonly kind: 'answer'; readonly text: string; readonly calls: readonly NaiveCall[] }
  | { readonly kind: 'result'; readonly call: string; readonly text: string }
  | {
      readonly kind: 'summary';
      readonly text: string;
      readonly keepFrom: string;
      readonly protects: readonly string[];
    }
  | { readonly kind: 'aside' };

/** An entry of the naive model: it points at its parent. */
export interface Node {
  readonly id: string;
  readonly parent: Node | null;
  readonly type: string;
  readonly said: Said;
  readonly model?: string | undefined;
  readonly level?: string | undefined;
  /** A result that a recovery made up. */
  readonly isRecovered?: boolean;
}

/** A line of a log, as any JSON parser reads it. */
export interface Line {
  readonly event_type?: string;
  readonly id?: string;
  readonly parent_id?: string | null;
  readonly payload?: Record<string, unknown>;
}

interface Block {
  readonly type: string;
  readonly text?: string;
  readonly call_id?: string;
  readonly name?: string;
  readonly input?: unknown;
}

/** A thread as pointers: no indexes, no fold, everything found by walking. */
export class NaiveThread {
  readonly nodes = new Map<string, Node>();
  readonly labels = new Map<string, string>();
  readonly id: string;
  head: Node | null = null;
  /** Micro-dollars that the thread has spent. */
  spent = 0;
  /** Complete lines of the log that were read. */
  lines = 0;
  runs = 1;
  turns = 0;
  /** A person moved the head after the last run. */
  isMoved = false;
  /** An edit was interrupted: what it paid may not be booked everywhere yet. */
  isInDebt = false;
  status = 'none';
  /** True if a directive with tools made it. */
  readonly hasTools: boolean;

  constructor(id: string, hasTools = true) {
    this.id = id;
    this.hasTools = hasTools;
  }

  path(from: Node | null = this.head): Node[] {
    const path: Node[] = [];
    for (let at = from; at; at = at.parent) path.unshift(at);
    return path;
  }

  node(id: string): Node {
    const node = this.nodes.get(id);
    if (!node) throw new Error(`the model has no entry ${id}`);
    return node;
  }

  /** The model in force: set or heard last. */
  modelAt(from: Node | null = this.head): string | undefined {
    return this.path(from).findLast(({ model }) => model !== undefined)?.model;
  }

  levelAt(from: Node | null = this.head): string | undefined {
    return this.path(from).findLast(({ level }) => level !== undefined)?.level;
  }

  /** The real result of a call, wherever in the log; else the result that a recovery wrote. */
  outcome(call: string): Node | undefined {
    const all = [...this.nodes.values()].filter(
      ({ said }) => said.kind === 'result' && said.call === call,
    );
    return all.find(({ isRecovered }) => !isRecovered) ?? all[0];
  }

  /** Returns the context at an entry, one line to a block. */
  context(from: Node | null = this.head): string[] {
    const path = this.path(from);
    const at = path.findLastIndex(({ said }) => said.kind === 'summary');
    const summary = path[at];
    let counted = path;
    if (summary?.said.kind === 'summary') {
      const { keepFrom, protects } = summary.said;
      const first = path.findIndex(({ id }) => id === keepFrom);
      const kept = first === -1 || first > at ? [] : path.slice(first, at);
      counted = [
        ...path.slice(0, first === -1 ? at : first).filter(({ id }) => protects.includes(id)),
        summary,
        ...kept.filter(({ said }) => said.kind !== 'summary'),
        ...path.slice(at + 1),
      ];
    }
    return this.#paired(counted.filter(({ said }) => said.kind !== 'aside'));
  }

  /** Returns the blocks with each result after its call. */
  #paired(nodes: readonly Node[]): string[] {
    const texts: string[] = [];
    nodes.forEach(({ said }, index) => {
      if (said.kind === 'user') texts.push(`user ${said.text}`);
      if (said.kind === 'summary') texts.push(`user ${said.text}`);
      if (said.kind !== 'answer') return;
      if (said.text !== '') texts.push(`assistant ${said.text}`);
      for (const { id, name, input } of said.calls) {
        texts.push(`call ${id} ${name} ${JSON.stringify(input)}`);
      }
      const next = nodes.findIndex((one, at) => at > index && one.said.kind === 'answer');
      const turn = nodes.slice(index + 1, next === -1 ? nodes.length : next);
      for (const { id } of said.calls) {
        const own = turn.find((one) => one.said.kind === 'result' && one.said.call === id);
        const found = (own ?? this.outcome(id))?.said;
        texts.push(`result ${id} ${found?.kind === 'result' ? found.text : '?'}`);
      }
    });
    return texts;
  }

  /** True if the last that the model would read is its own answer. */
  isAnswered(): boolean {
    const last = this.context().at(-1) ?? '';
    return last.startsWith('assistant ');
  }

  /** Adds an entry of the log. Its parent must be the head. */
  adopt(line: Line): Node {
    const { id = '', parent_id: parent = null, event_type: type = '', payload = {} } = line;
    expect(`${type} ${id} below ${parent}`).toBe(`${type} ${id} below ${this.head?.id ?? null}`);
    const node: Node = { id, parent: this.head, type, ...partsOf(type, payload) };
    this.nodes.set(id, node);
    this.head = node;
    const target = payload['target_id'] as string | null;
    if (type === 'leaf') this.head = target === null ? null : this.node(target);
    if (type === 'label') this.#name(target ?? '', payload['label'] as string | null);
    return node;
  }

  #name(target: string, label: string | null): void {
    if (label === null) this.labels.delete(target);
    else this.labels.set(target, label);
  }
}

function partsOf(
  type: string,
  payload: Readonly<Record<string, unknown>>,
): Pick<Node, 'said' | 'model' | 'level' | 'isRecovered'> {
  const aside = { kind: 'aside' } as const;
  switch (type) {
    case 'message':
      return messageParts(payload['message'] as Parameters<typeof messageParts>[0]);
    case 'custom_message':
      return { said: { kind: 'user', text: String(payload['content']) } };
    case 'branch_summary':
      return { said: { kind: 'user', text: String(payload['summary']) } };
    case 'compaction':
      return {
        said: {
          kind: 'summary',
          text: String(payload['summary']),
          keepFrom: String(payload['first_kept_entry_id']),
          protects: (payload['protected_entry_ids'] ?? []) as string[],
        },
      };
    case 'model_change':
      return { said: aside, model: String(payload['model']) };
    case 'thinking_change':
      return { said: aside, level: String(payload['level']) };
    default:
      return { said: aside };
  }
}

function messageParts(message: {
  readonly role: string;
  readonly content: readonly Block[];
  readonly call_id?: string;
  readonly model?: string;
  readonly data?: { readonly recovered?: unknown };
}): Pick<Node, 'said' | 'model' | 'isRecovered'> {
  const text = message.content.map((block) => block.text ?? '').join('');
  if (message.role === 'user') return { said: { kind: 'user', text } };
  if (message.role === 'tool_result') {
    const said = { kind: 'result', call: message.call_id ?? '', text } as const;
    return message.data?.recovered === undefined ? { said } : { said, isRecovered: true };
  }
  const calls = message.content
    .filter(({ type }) => type === 'tool_call')
    .map(({ call_id: id = '', name = '', input }) => ({ id, name, input }));
  return { said: { kind: 'answer', text, calls }, model: message.model };
}

const SUMMARY = /<summary>\n([^]*)\n<\/summary>/;

/** The text of a message; of a summary only what was summarized. */
export function plain(text: string): string {
  return SUMMARY.exec(text)?.[1] ?? text;
}
