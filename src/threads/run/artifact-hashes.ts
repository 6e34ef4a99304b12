import { createHash } from 'node:crypto';
import type { EventDraft } from '../../core/events.ts';

/** Hashes of the artifacts of one run, so that the log names the bytes that it refers to. */
export class ArtifactHashes {
  readonly #hashes = new Map<string, string>();

  note(path: string, text: string): void {
    this.#hashes.set(path, createHash('sha256').update(text).digest('hex'));
  }

  /** The draft with the hash of the artifact that it names. */
  named(draft: EventDraft): EventDraft {
    if (draft.event_type !== 'tool_settled' || draft.payload.artifact === undefined) return draft;
    const artifact_sha256 = this.#hashes.get(draft.payload.artifact);
    if (artifact_sha256 === undefined) return draft;
    return { ...draft, payload: { ...draft.payload, artifact_sha256 } };
  }
}
