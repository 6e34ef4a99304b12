import { readFileSync } from 'node:fs';
import { RyeError } from '../../core/errors.ts';
import type { ModelEvent, ModelProvider, ProviderFailure, ProviderKind } from '../provider.ts';
import { parseRecording, type Recording } from './recording.ts';

const ABORTED: ProviderFailure = { phase: 'aborted', message: 'the model call was cancelled' };

/** The kind that plays the recording at `path`. One player serves the whole thread: a recording is played once, in order. */
export function replayKind(path: string | undefined): ProviderKind {
  let player: ModelProvider | undefined;
  return {
    traits: { embedded: true, replayable: false, needsTools: false },
    open: () => {
      if (path === undefined) {
        throw new RyeError('usage', 'the replay provider needs a recording', {
          hint: 'Give one with --replay FILE; `--record FILE` writes one.',
        });
      }
      player ??= replayProvider(parseRecording(readFileSync(path, 'utf8'), path));
      return player;
    },
  };
}

/**
 * Plays recorded calls in their order, whatever is asked; `skip` calls are taken as played already. After the last
 * one every call fails with the type `replay_exhausted`. A call whose recording was cut ends as a broken stream.
 */
export function replayProvider(recording: Recording, { skip = 0 } = {}): ModelProvider {
  let next = skip;
  return {
    name: 'replay',
    async *stream(_request, signal) {
      const call = recording.calls[next];
      next += 1;
      for (const event of call === undefined ? [exhausted(recording)] : complete(call.events)) {
        if (signal.aborted) {
          yield { type: 'error', failure: ABORTED };
          return;
        }
        yield event;
      }
    },
  };
}

function exhausted({ calls }: Recording): ModelEvent {
  const message = `the recording has ${calls.length} model calls and another one was asked for`;
  return { type: 'error', failure: { phase: 'response', type: 'replay_exhausted', message } };
}

function complete(events: readonly ModelEvent[]): readonly ModelEvent[] {
  const last = events.at(-1)?.type;
  if (last === 'finish' || last === 'error') return events;
  const failure = {
    phase: 'stream',
    type: 'incomplete_stream',
    message: 'the recording of this call is cut',
  } as const;
  return [...events, { type: 'error', failure }];
}
