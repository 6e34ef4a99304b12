import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import { decodeHeader } from '../../log/codec.ts';
import { LinePicker } from '../../log/lines.ts';
import type { LineVisitor } from '../../log/scanner.ts';
import { isKnown } from '../../log/tree.ts';
import { AUDITED_EVENTS, type LogAudit } from './approvals.ts';

export interface NamedArtifact {
  readonly path: string;
  /** The whole hash, or the beginning of it; absent in logs of older versions. */
  readonly sha256: string | undefined;
}

const TEXT_ARTIFACT = '/artifacts/text-';
/** Texts that were too long for a line are kept under the beginning of their hash. */
const KEPT_TEXT = /\.ai\/state\/threads\/[^"\\]+\/artifacts\/text-([0-9a-f]{32})\.txt/g;

/** Collects what the checks beside the signatures need of a log, in the pass that verifies it. */
export class LogFacts implements LineVisitor {
  /** The artifacts that the log names. */
  readonly artifacts: NamedArtifact[] = [];
  /** The store has shown the log. */
  isRead = false;
  readonly #audit: LogAudit;
  readonly #picker: LinePicker;
  readonly #own: string;
  #isCopy = false;

  constructor(threadId: string, audit: LogAudit) {
    this.#audit = audit;
    this.#own = `.ai/state/threads/${threadId}/artifacts/`;
    this.#picker = new LinePicker({
      threadId,
      types: [...AUDITED_EVENTS, 'tool_settled'],
      event: (event) => {
        this.#event(event);
      },
      text: {
        of: TEXT_ARTIFACT,
        take: (line) => {
          this.#texts(line);
        },
      },
    });
  }

  lines(run: Buffer, offset: number): boolean {
    if (offset === 0) this.#header(run.toString('utf8', 0, run.indexOf('\n')));
    return this.#picker.lines(run);
  }

  oversized(): boolean {
    return true;
  }

  /** The problems of calls that a person had to decide about. */
  get approvals(): ReturnType<LogAudit['result']> {
    return this.#audit.result(this.#isCopy);
  }

  #header(line: string): void {
    this.isRead = true;
    const decoded = decodeHeader(line);
    this.#isCopy = 'header' in decoded && decoded.header.branched_from !== undefined;
  }

  #event(event: LogEvent | UnknownEvent): void {
    this.#isCopy ||= event.event_type === 'thread_continued';
    if (!isKnown(event, 'tool_settled')) {
      this.#audit.take(event);
      return;
    }
    const { artifact: path, artifact_sha256: sha256 } = event.payload;
    if (typeof path === 'string') {
      this.artifacts.push({ path, sha256: typeof sha256 === 'string' ? sha256 : undefined });
    }
  }

  #texts(line: string): void {
    for (const [path, sha256] of line.matchAll(KEPT_TEXT)) {
      if (path?.startsWith(this.#own)) this.artifacts.push({ path, sha256 });
    }
  }
}
