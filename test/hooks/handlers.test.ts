import { describe, expect, it } from 'vitest';
import type { LogEvent } from '../../src/kernel/core/events.ts';
import { composeHandlers, type HandlerMap, observe } from '../../src/kernel/hooks/handlers.ts';

const NOTE = { event_type: 'note', payload: { text: 'x' } } as LogEvent;

describe('composeHandlers', () => {
  // Requirement: handlers-per-program-and-run
  it('takes one or several to an event', () => {
    const one = (): void => undefined;
    const two = (): void => undefined;
    const lists = composeHandlers({ note: one, event: [one] }, { note: [two, one] });
    expect(lists).toEqual({ note: [one, two, one], event: [one] });
    expect(composeHandlers(lists, { note: two })['note']).toEqual([one, two, one, two]);
  });

  // Requirement: unknown-handler-event
  it('refuses an event that does not exist and names the nearest', () => {
    const misspelled = { tool_gates: () => ({ block: 'no' }) } as HandlerMap;
    expect(() => composeHandlers(misspelled)).toThrow(
      expect.objectContaining({ code: 'hook_invalid', hint: 'Did you mean tool_gate?' }),
    );
    expect(() => composeHandlers({ toString: () => undefined } as HandlerMap)).toThrow(
      'handler event "toString"',
    );
  });

  it('refuses what is no function', () => {
    expect(() => composeHandlers({ note: [1] } as unknown as HandlerMap)).toThrow(
      'the handler of note is not a function',
    );
  });
});

describe('observe', () => {
  it('calls handlers of the type, then handlers of all types, and lets no failure out', async () => {
    const seen: string[] = [];
    const failures: unknown[] = [];
    const handlers = composeHandlers({
      note: [
        () => {
          throw new Error('at once');
        },
        async () => await Promise.reject(new Error('later')),
        ({ payload }) => {
          seen.push(payload.text);
        },
      ],
      event: ({ event_type }) => {
        seen.push(event_type);
      },
      cost: () => {
        seen.push('cost');
      },
    });
    observe(handlers, NOTE, (name, error) => failures.push([name, String(error)]));
    await Promise.resolve();
    expect(seen).toEqual(['x', 'note']);
    await expect
      .poll(() => failures)
      .toEqual([
        ['note', 'Error: at once'],
        ['note', 'Error: later'],
      ]);
  });
});
