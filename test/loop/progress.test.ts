import { expect, it } from 'vitest';
import type { AssistantMessage } from '../../src/kernel/core/message.ts';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import { Progress } from '../../src/kernel/loop/run.ts';

function answer(text: string, reason: AssistantMessage['stop_reason']): AssistantMessage {
  return {
    role: 'assistant',
    content: text === '' ? [] : [{ type: 'text', text }],
    stop_reason: reason,
    provider: 'p',
    model: 'm',
    usage: NO_USAGE,
  };
}

it('a run whose answer was cut needs long answers from then on', () => {
  const progress = new Progress(false);
  progress.noteText(answer('One', 'end'));
  expect(progress.needsLongAnswers).toBe(false);
  progress.noteText(answer('Two', 'max_tokens'));
  expect(progress.needsLongAnswers).toBe(true);
  progress.noteToolUse();
  progress.noteText(answer('Three', 'end'));
  expect(progress.needsLongAnswers).toBe(true);
});

it('the last text of a run is its last answer with a text, joined where it was continued', () => {
  const progress = new Progress(false);
  progress.noteText(answer('One', 'end'));
  progress.noteText(answer('', 'tool_calls'));
  expect(progress.lastText).toBe('One');
  progress.noteText(answer('Two ', 'max_tokens'));
  progress.joinAnswer();
  progress.noteText(answer('halves', 'end'));
  expect(progress.lastText).toBe('Two halves');
  progress.noteToolUse();
  progress.noteText(answer('Three', 'end'));
  expect(progress.lastText).toBe('Three');
});

it('a run that continues the answer of an earlier one joins its text', () => {
  const progress = new Progress(true, 'It be');
  progress.noteText(answer('gins.', 'end'));
  expect([progress.lastText, progress.usedTools]).toEqual(['It begins.', true]);
});
