import { describe, expect, it } from 'vitest';
import {
  type AssistantBlock,
  type AssistantMessage,
  userText,
} from '../../src/kernel/core/message.ts';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import { messageBytes } from '../../src/kernel/log/summary-prompt.ts';
import { projectContext } from '../../src/kernel/loop/conversation.ts';
import { ContextMeter } from '../../src/kernel/loop/meters.ts';

const answerOf = (content: readonly AssistantBlock[], model = 'm'): AssistantMessage => ({
  role: 'assistant',
  content,
  provider: 'p',
  model,
  stop_reason: 'end',
  usage: NO_USAGE,
});
const text = (value: string) => ({ type: 'text', text: value }) as const;
const thought = { type: 'thinking', text: 'hm', signature: 's' } as const;
const call = { type: 'tool_call', call_id: 'a', name: 'rye_ls', input: {} } as const;
const READER = { provider: 'p', model: 'm' };

describe('projectContext', () => {
  it('leaves what is well as it is', () => {
    const messages = [userText('x'), answerOf([thought, text('y'), call])];
    const projected = projectContext(messages, READER);
    expect(projected).toEqual(messages);
    expect(projected[1]).toBe(messages[1]);
  });

  it.each([
    ['nothing', []],
    ['blank text', [text(' \n')]],
    ['only thought', [thought]],
  ] as const)('drops an answer that is %s', (_name, content) => {
    expect(projectContext([userText('x'), answerOf(content)], READER)).toEqual([userText('x')]);
  });

  it('drops blank text beside a call, and the thoughts of another model', () => {
    expect(
      projectContext([answerOf([thought, text(''), call], 'other')], READER)[0]?.content,
    ).toEqual([call]);
    expect(projectContext([answerOf([thought, text(''), call])], READER)[0]?.content).toEqual([
      thought,
      call,
    ]);
  });
});

describe('ContextMeter', () => {
  // Requirement: estimates-incomplete
  it('estimates from bytes, higher for the worst case', () => {
    const meter = new ContextMeter();
    meter.add(userText('x'.repeat(1184)));
    expect(meter.likelyTokens(0)).toBe(300);
    expect(meter.worstTokens(0)).toBe(858);
    expect(meter.likelyTokens(400)).toBe(400);
  });

  it('keeps its estimate where a provider counts nothing', () => {
    const meter = new ContextMeter();
    meter.add(userText('x'.repeat(10_000)));
    const before = meter.worstTokens(0);
    meter.calibrate(0, 0);
    expect(meter.worstTokens(0)).toBe(before);
  });

  it('trusts the provider’s count and estimates only what came after', () => {
    const meter = new ContextMeter();
    meter.add(userText('x'.repeat(10_000)));
    meter.calibrate(50, 400);
    expect(meter.likelyTokens(400)).toBe(50);
    meter.add(userText('x'.repeat(384)));
    expect(meter.likelyTokens(400)).toBe(150);
    meter.reset([userText('x'.repeat(384))]);
    expect(meter.likelyTokens(0)).toBe(100);
  });

  it('counts bytes, not characters, and images by their tokens', () => {
    expect(messageBytes(userText('é'))).toBe(messageBytes(userText('xx')));
    const image = { type: 'image', media_type: 'image/png', data: 'A'.repeat(1e6) } as const;
    expect(messageBytes({ role: 'user', content: [image] })).toBeLessThan(10_000);
  });
});
