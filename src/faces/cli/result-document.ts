import type { LogEvent, UnknownEvent } from '../../kernel/core/events.ts';
import type { JsonObject } from '../../kernel/core/json.ts';
import { toolCallsOf } from '../../kernel/core/message.ts';
import type { ThreadResult } from '../../kernel/core/thread.ts';
import { payloadOf } from '../ui/render/progress-line.ts';

/** A call that permissions, hooks or a person refused. */
interface PermissionDenial {
  readonly tool_name: string;
  readonly tool_use_id: string;
  readonly tool_input: JsonObject;
  readonly reason?: string;
}

/** The result as JSON: the ThreadResult, and the members that scripts for other agents read. */
export interface ResultDocument extends ThreadResult {
  /** The thread's ID. */
  readonly session_id: string;
  readonly is_error: boolean;
  readonly num_turns: number;
  /** USD, with the children. */
  readonly total_cost_usd: number;
  readonly duration_ms: number;
  /** The outputs; null without any. */
  readonly structured_output: JsonObject | null;
  readonly permission_denials: readonly PermissionDenial[];
}

/** Collects what a result document needs from the events of a run. */
export class ResultCollector {
  readonly #inputs = new Map<string, JsonObject>();
  readonly #denials: PermissionDenial[] = [];

  /** Returns a listener that notes each event before it passes it on. */
  before(listener: (event: LogEvent | UnknownEvent) => void): typeof listener {
    return (event) => {
      this.note(event);
      listener(event);
    };
  }

  note(event: LogEvent | UnknownEvent): void {
    const message = payloadOf(event, 'message')?.message;
    if (message?.role === 'assistant') {
      this.#inputs.clear();
      for (const { call_id: id, input } of toolCallsOf(message)) this.#inputs.set(id, input);
    }
    const settled = payloadOf(event, 'tool_settled');
    if (settled?.outcome !== 'blocked') return;
    const { tool: tool_name, call_id: tool_use_id, reason } = settled;
    const tool_input = this.#inputs.get(tool_use_id) ?? {};
    this.#denials.push({ tool_name, tool_use_id, tool_input, ...(reason ? { reason } : {}) });
  }

  document(result: ThreadResult): ResultDocument {
    return {
      ...result,
      session_id: result.thread_id,
      is_error: !result.success,
      num_turns: result.cost.turns,
      total_cost_usd: result.cost.total.spend,
      duration_ms: Math.round(result.cost.elapsed_seconds * 1000),
      structured_output: result.outputs ?? null,
      permission_denials: this.#denials,
    };
  }
}

/** Writes the result of a run to the file of `--output`, as text or as the JSON document that `--json` prints. */
export async function saveResult(
  target: string,
  result: ThreadResult,
  content: string | object,
): Promise<void> {
  const { writeOutput } = await import('../../kernel/disk/whole-file.ts');
  const output = typeof content === 'string' ? content : JSON.stringify(content);
  writeOutput(target, output.endsWith('\n') ? output : `${output}\n`, {
    hint: `The thread itself has finished. Show its result: rye threads show ${result.thread_id}`,
  });
}
