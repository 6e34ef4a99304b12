import { describe, expect, it } from 'vitest';
import type { LogEvent, UnknownEvent } from '../../src/kernel/core/events.ts';
import {
  decodeHeader,
  encodeHeader,
  LOG_VERSION,
  type LogStep,
  upgradeFrom,
  versionProblem,
} from '../../src/kernel/log/codec.ts';
import { headerFor, place, userMessage } from './support.ts';

const [EVENT] = place([userMessage('x')]) as [LogEvent];

/** A step as a later version would bring it: a type gets another name. */
function renamed(from: string, to: string): LogStep {
  return (event) =>
    event.event_type === from ? ({ ...event, event_type: to } as UnknownEvent) : event;
}

describe('the version of a log', () => {
  it('is the version that is written', () => {
    expect(JSON.parse(encodeHeader(headerFor()))).toMatchObject({ version: LOG_VERSION });
    expect(versionProblem(LOG_VERSION)).toBeUndefined();
    expect(upgradeFrom(LOG_VERSION)).toBeUndefined();
  });

  it.each([0, -1, 1.5, '1', null, undefined])('is not %s', (version) => {
    expect(versionProblem(version)).toContain('is not known');
  });

  // Requirement: newer-version-silent
  it('is refused where it is newer, with the reason', () => {
    const header = JSON.stringify({ ...headerFor(), version: LOG_VERSION + 1 });
    expect(decodeHeader(header)).toEqual({
      problem: `its format version ${LOG_VERSION + 1} is not known; a newer rye wrote it`,
    });
  });
});

describe('the chain of versions', () => {
  const steps = [renamed('message', 'said'), renamed('said', 'spoken')];

  it('brings an event through every version since its own', () => {
    expect(upgradeFrom(1, steps)?.(EVENT).event_type).toBe('spoken');
    expect(upgradeFrom(2, steps)?.(EVENT).event_type).toBe('message');
    expect(upgradeFrom(3, steps)).toBeUndefined();
  });

  it('leaves alone what has the newer form already', () => {
    const upgrade = upgradeFrom(1, steps);
    const once = upgrade?.(EVENT);
    expect(once && upgrade?.(once)).toEqual(once);
  });
});
