import { describe, expect, it } from 'vitest';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import { note } from '../../src/kernel/loop/conversation.ts';
import { Outbox } from '../../src/kernel/loop/outbox.ts';
import { logOf } from './scripted.ts';

const delta = (text: string): EventDraft => ({ event_type: 'token_delta', payload: { text } });
const textsOf = (written: readonly { readonly payload: unknown }[]): string[] =>
  written.map(({ payload }) => (payload as { text: string }).text);

describe('Outbox', () => {
  // Requirement: event-order
  it('keeps the order and hands each writer its own events, without deltas', async () => {
    const outbox = new Outbox(() => undefined);
    outbox.post(delta('1'));
    const first = outbox.write([note('2'), delta('3'), note('4')]);
    outbox.post(note('5'));
    const second = outbox.write([note('6')]);
    outbox.close();
    const log = logOf();
    const pump = outbox.pump();
    const { value } = await pump.next();
    expect(textsOf(value ?? [])).toEqual(['1', '2', '3', '4', '5', '6']);
    // a log that merged or dropped the deltas
    const kept = (value ?? []).filter(({ event_type }) => event_type === 'note');
    expect((await pump.next(log.append(kept))).done).toBe(true);
    expect(textsOf(await first)).toEqual(['2', '4']);
    expect(textsOf(await second)).toEqual(['6']);
  });

  it('lets a writer continue only after the consumer has come back', async () => {
    const outbox = new Outbox(() => undefined);
    let isWritten = false;
    const write = outbox.write([note('x')]).then(() => {
      isWritten = true;
      return undefined;
    });
    const pump = outbox.pump();
    await pump.next();
    await Promise.resolve();
    expect(isWritten).toBe(false);
    outbox.close();
    await pump.next([]);
    await write;
    expect(isWritten).toBe(true);
  });

  it('lets what is posted in one burst leave in one batch, and a write take it along at once', async () => {
    const outbox = new Outbox(() => undefined);
    const pump = outbox.pump();
    const burst = pump.next();
    for (const text of ['1', '2', '3']) {
      outbox.post(delta(text));
      await Promise.resolve();
      await Promise.resolve();
    }
    expect((await burst).value).toHaveLength(3);
    const next = pump.next([]);
    outbox.post(delta('4'));
    void outbox.write([note('5')]);
    let isAt = 'the writing';
    setImmediate(() => {
      isAt = 'a later tick';
    });
    expect(textsOf((await next).value ?? [])).toEqual(['4', '5']);
    expect(isAt).toBe('the writing');
  });

  it('blocks a stream while the consumer is slower', async () => {
    const outbox = new Outbox(() => undefined);
    for (let index = 0; index < 256; index += 1) outbox.post(delta('x'));
    expect(outbox.isFull).toBe(true);
    const room = outbox.room();
    const { value } = await outbox.pump().next();
    await room;
    expect(value).toHaveLength(256);
    expect(outbox.isFull).toBe(false);
  });

  it('fails everyone who waits, now and later, when the consumer throws', async () => {
    let failures = 0;
    const outbox = new Outbox(() => {
      failures += 1;
    });
    const inFlight = outbox.write([note('a')]);
    const pump = outbox.pump();
    await pump.next();
    const queued = outbox.write([note('b')]);
    const ended = pump.throw(new Error('disk full'));
    await expect(inFlight).rejects.toThrow('disk full');
    await expect(queued).rejects.toThrow('disk full');
    await expect(outbox.write([note('c')])).rejects.toThrow('disk full');
    outbox.close();
    expect((await ended).done).toBe(true);
    expect(failures).toBe(1);
  });
});
