import { appendWhole, assertWritable, writeOutput } from '../disk/whole-file.ts';
import type { ModelProvider } from '../providers/provider.ts';
import { recordingProvider } from '../providers/replay/recording.ts';

/**
 * Wraps providers so that everything that they say is written to `path`, one JSON object a line. The first line replaces
 * what the file held, so that a run that never gets to a model leaves an older recording alone.
 */
export function openRecording(path: string): (provider: ModelProvider) => ModelProvider {
  assertWritable(path);
  let isBegun = false;
  const record = (line: string): void => {
    if (isBegun) appendWhole(path, `${line}\n`);
    else writeOutput(path, `${line}\n`, { mode: 0o600 });
    isBegun = true;
  };
  return (provider) => recordingProvider(provider, record);
}
