import picocolors from 'picocolors';
import { describe, expect, it } from 'vitest';
import { createLiveRenderer } from '../../../src/cli/render/live.ts';
import { ERASE_LINE } from '../../../src/cli/terminal-text.ts';
import type { LogEvent } from '../../../src/core/events.ts';
import { createFakeIo, type FakeIo } from '../../helpers/fake-io.ts';
import { assistantMessage, COMPLETED, event, LIMITED, STARTED } from '../events.ts';

const COLORS = picocolors.createColors(false);

function show(events: readonly LogEvent[], result = COMPLETED, stdoutIsTty = true): FakeIo {
  const io = createFakeIo({ stdoutIsTty, stderrIsTty: true });
  const renderer = createLiveRenderer(io, COLORS);
  for (const one of events) renderer.event(one);
  renderer.finish(result);
  renderer.close();
  return io;
}

/** Returns the visible screen, without erased lines. */
function screen(text: string): string {
  const parts = text.split(ERASE_LINE);
  const last = parts.pop() ?? '';
  return parts.map((part) => part.slice(0, part.lastIndexOf('\n') + 1)).join('') + last;
}

const DELTAS = ['Hello,', ' Ada.'].map((text) => event('token_delta', { text }));

describe('live renderer', () => {
  it('shows words once on stdout when it is the terminal', () => {
    const io = show([STARTED, ...DELTAS, assistantMessage('Hello, Ada.')]);
    expect(io.out()).toBe('Hello, Ada.\n');
  });

  it('shows a message that came without deltas', () => {
    expect(show([assistantMessage('Hello, Ada.')]).out()).toBe('Hello, Ada.\n');
  });

  it('prints a result that was not the last message', () => {
    const io = show([assistantMessage('working')], { ...COMPLETED, result: 'done' });
    expect(io.out()).toBe('working\ndone\n');
  });

  it('keeps stdout for the result when it is a pipe', () => {
    const io = show([...DELTAS, assistantMessage('Hello, Ada.')], COMPLETED, false);
    expect(io.out()).toBe('Hello, Ada.\n');
    expect(screen(io.err())).toContain('Hello, Ada.\n');
  });

  it('shows tool calls as short lines with outcome and duration', () => {
    const call = { call_id: 'c', tool: 'rye/bash', name: 'rye_bash', turn: 1 };
    const io = show([
      event('tool_call_start', { ...call, input: { command: 'ls\n-la' } }),
      event('tool_settled', { ...call, outcome: 'ok', duration_ms: 1234, output_bytes: 1 }),
      event('tool_settled', {
        ...call,
        outcome: 'blocked',
        duration_ms: 5,
        output_bytes: 1,
        reason: 'not granted',
      }),
    ]);
    expect(screen(io.err())).toContain(
      '→ rye/bash command=ls -la\n✓ rye/bash 1.2s\n✗ rye/bash blocked 5ms: not granted\n',
    );
  });

  it('redraws turns, tokens and spend against their limits and leaves nothing of it', () => {
    const total = COMPLETED.cost;
    const usage = {
      input_tokens: 900,
      output_tokens: 0,
      cache_read_tokens: 0,
      cache_write_tokens: 0,
    };
    const io = show([
      STARTED,
      event('turn_started', { turn: 2 }),
      event('cost', { turn: 2, usage, total }),
    ]);
    expect(io.err()).toContain('turn 2/25 · 900/1.0M tokens · $0.0125/$5.00 · 0ms');
    expect(screen(io.err())).toBe(
      'hello on acme/large\ncompleted hello-1 (1 turn, 900 tokens, $0.0125, 1.5s)\n',
    );
  });

  it("neutralizes escapes in the model's and the tools' text", () => {
    const io = show([
      event('token_delta', { text: '\u001B]0;owned\u0007hi\u001B[2J' }),
      event('note', { text: '\u001B[31mred\rx' }),
    ]);
    expect(io.out().startsWith('hi\n')).toBe(true);
    expect(screen(io.err())).toContain('red x\n');
  });

  it('prints why a thread failed', () => {
    expect(show([], LIMITED).err()).toContain(
      'rye: all 25 turns are used [limit_turns]\nhint: Raise --limit turns.\n',
    );
  });
});
