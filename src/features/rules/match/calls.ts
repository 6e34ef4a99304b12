import {
  isJsonObject,
  type JsonObject,
  type JsonValue,
  toText,
} from '../../../kernel/core/json.ts';
import { type Message, type ToolOutcome, toolCallsOf } from '../../../kernel/core/message.ts';
import { isKnown, pathTo, type SessionTree } from '../../../kernel/log/tree.ts';
import { type CallPath, pathsIn } from '../stream/paths.ts';

/** A call that the thread made before the answer that is watched. */
export interface PastCall {
  /** Names by which rules may call its tool, lower case. */
  readonly names: readonly string[];
  readonly paths: readonly CallPath[];
  /** Its arguments as JSON. */
  readonly json: string;
  /** The texts of an argument of that name, at any depth. */
  readonly argument: (name: string) => readonly string[];
  /** True if this run made it, not an earlier one of the thread. */
  readonly isOfRun: boolean;
  /** `refused`: it never ran. */
  readonly status: 'open' | 'completed' | 'failed' | 'refused';
}

const STATUS: Readonly<Record<ToolOutcome, PastCall['status']>> = {
  ok: 'completed',
  substituted: 'completed',
  error: 'failed',
  timeout: 'failed',
  aborted: 'failed',
  unknown: 'failed',
  blocked: 'refused',
  invalid: 'refused',
  skipped: 'refused',
};

interface Noted {
  readonly name: string;
  readonly input: JsonObject;
  readonly isOfRun: boolean;
  status: PastCall['status'];
  view?: PastCall;
}

const EXECUTE = 'rye/execute';

/** The calls of a thread along the path that its run continues, as its log has them. */
export class PastCalls {
  readonly #calls: Noted[] = [];
  readonly #open = new Map<string, Noted>();
  #isRun = false;

  /** Takes the calls of earlier runs. */
  restore(tree: SessionTree, leafId: string | null = tree.leafId): void {
    for (const entry of pathTo(tree, leafId)) {
      if (isKnown(entry, 'message')) this.note(entry.payload.message);
    }
  }

  /** Begins the present run: calls from now on are its own. */
  begin(): void {
    this.#isRun = true;
  }

  /** Notes the calls of an answer, and how calls ended. A cut answer made no calls. */
  note(message: Message): void {
    if (message.role === 'assistant' && message.stop_reason !== 'aborted') {
      for (const { call_id, name, input } of toolCallsOf(message)) {
        const call: Noted = { name, input, isOfRun: this.#isRun, status: 'open' };
        this.#calls.push(call);
        this.#open.set(call_id, call);
      }
    } else if (message.role === 'tool_result') {
      const call = this.#open.get(message.call_id);
      this.#open.delete(message.call_id);
      if (call) call.status = STATUS[message.outcome];
    }
  }

  /** Returns the calls, the oldest first. */
  views(namesOf: (tool: string) => readonly string[], projectPath: string): readonly PastCall[] {
    return this.#calls.map((call) => {
      if (call.view?.status === call.status) return call.view;
      call.view = viewOf(call, namesOf, projectPath);
      return call.view;
    });
  }
}

function viewOf(
  { name, input, isOfRun, status }: Noted,
  namesOf: (tool: string) => readonly string[],
  projectPath: string,
): PastCall {
  const names = namesOf(name);
  const item = names.includes(EXECUTE) ? input['item_id'] : undefined;
  return {
    names: typeof item === 'string' ? [...names, ...namesOf(item)] : names,
    paths: pathsIn(input, projectPath),
    json: JSON.stringify(input),
    argument: (wanted) => textsNamed(input, wanted),
    isOfRun,
    status,
  };
}

function textsNamed(input: JsonObject, wanted: string): readonly string[] {
  const found: string[] = [];
  const visit = (value: JsonValue | undefined, key: string): void => {
    if (Array.isArray(value)) for (const one of value) visit(one, key);
    else if (isJsonObject(value)) {
      for (const [name, member] of Object.entries(value)) visit(member, name);
    } else if (key === wanted && value !== undefined && value !== null) found.push(toText(value));
  };
  visit(input, '');
  return found;
}
