import { expect, it } from 'vitest';
import { checkText, detachedSignature, signText } from '../../src/kernel/trust/signature.ts';
import { lookup, testKey } from './keys.ts';

const key = testKey(1);
const subject = { kind: 'knowledge', id: 'notes/a' };
const signing = { subject, key, now: Date.UTC(2026, 0, 2) };
const later = { ...signing, now: Date.UTC(2026, 0, 3) };

it('a person signs again what a model has signed; a model leaves the signature of a person', () => {
  const ofModel = signText({ ...signing, text: 'A note.\n', style: 'html', thread: 't-1' });
  const check = (text: string) => checkText({ text, style: 'html', keys: lookup([key]), subject });
  expect(check(ofModel)).toMatchObject({ ok: true, thread: 't-1' });
  const ofPerson = signText({ ...later, text: ofModel, style: 'html' });
  expect(check(ofPerson)).toMatchObject({ ok: true, signedAt: '2026-01-03T00:00:00Z' });
  expect(check(ofPerson)).not.toHaveProperty('thread');
  const again = { ...later, style: 'html', thread: 't-2' } as const;
  expect(signText({ ...again, text: ofPerson })).toBe(ofPerson);
  expect(check(signText({ ...again, text: ofModel }))).toMatchObject({ thread: 't-2' });
});

it('the same holds for a signature that is kept beside its file', () => {
  const text = 'A note.\n';
  const make = (thread: string | undefined, present?: string): string =>
    detachedSignature({ ...later, text, style: 'html', thread }, present).signature;
  const [ofModel, ofPerson] = [make('t-1'), make(undefined)];
  expect(make(undefined, ofModel)).toBe(ofPerson);
  expect(make('t-2', ofPerson)).toBe(ofPerson);
});
