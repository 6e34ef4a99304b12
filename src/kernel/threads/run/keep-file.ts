import type { KeepFile } from '../../core/file-change.ts';
import type { Stored } from '../ports.ts';
import type { Recorder } from './recorder.ts';

/** Copies what a file has, then records the change, each durably: a crash at any point leaves a change that can be undone. */
export function fileKeeper(
  { files }: Pick<Stored, 'files'>,
  threadId: string,
  recorder: Recorder,
): KeepFile {
  return async (callId, change, bytes) => {
    const unkept = bytes === undefined ? undefined : await files.copies.keep(threadId, bytes);
    const payload = {
      call_id: callId,
      ...change,
      ...(unkept === undefined ? {} : { unkept }),
    };
    recorder.record([{ event_type: 'file_change', payload, durable: true }]);
    await recorder.settled();
  };
}
