import { expect, it } from 'vitest';
import type { EventDraft, LogEvent } from '../../src/kernel/core/events.ts';
import { userText } from '../../src/kernel/core/message.ts';
import {
  CONTINUE_DRAFT,
  interruptionDraft,
  isBetweenParts,
  isCutAfter,
  isInterruption,
} from '../../src/kernel/log/interruption.ts';

const injected = (display: boolean): EventDraft => ({
  event_type: 'custom_message',
  payload: { custom_type: 'said', content: 'Stop that.', display },
});

it.each<[string, EventDraft, boolean]>([
  ['the mark of an interruption', interruptionDraft('cancelled'), true],
  ['a text that only the model gets', injected(false), true],
  ['a text that people see, such as a message of theirs', injected(true), false],
  ['the request for the rest', CONTINUE_DRAFT, false],
  ['a message', { event_type: 'message', payload: { message: userText('Go on.') } }, false],
  ['an event of the log', { event_type: 'note', payload: { text: 'x' } }, true],
])('after %s an interrupted answer is the last word still, or not', (_name, draft, expected) => {
  expect(isCutAfter(draft, true)).toBe(expected);
});

it('only an interruption cuts an answer', () => {
  expect(isCutAfter(injected(false), false)).toBe(false);
  expect(isCutAfter(interruptionDraft('crashed'), false)).toBe(true);
});

it.each<[string, EventDraft | undefined, boolean, boolean]>([
  ['nothing', undefined, false, false],
  ['the mark of an interruption', interruptionDraft('cancelled'), true, true],
  ['the request for the rest', CONTINUE_DRAFT, false, true],
  ['a text that only the model gets', injected(false), false, false],
  ['a text of a person', injected(true), false, false],
  ['a message', { event_type: 'message', payload: { message: userText('x') } }, false, false],
])(
  '%s is the mark of an interruption, or stands between two parts, or neither',
  (_, draft, mark, between) => {
    const entry = draft as LogEvent | undefined;
    expect([isInterruption(entry), isBetweenParts(entry)]).toEqual([mark, between]);
  },
);
