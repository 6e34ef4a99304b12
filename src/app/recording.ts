import { appendFileSync, writeFileSync } from 'node:fs';
import type { ModelProvider } from '../providers/provider.ts';
import { recordingProvider } from '../providers/replay/recording.ts';

/** Wraps providers so that everything that they say is written to `path`, one JSON object a line. */
export function openRecording(path: string): (provider: ModelProvider) => ModelProvider {
  writeFileSync(path, '', { mode: 0o600 });
  return (provider) => recordingProvider(provider, (line) => appendFileSync(path, `${line}\n`));
}
