import { describe, expect, it } from 'vitest';
import { TaggedThought } from '../../../src/kernel/providers/openai/answer-text.ts';

function read(...pieces: readonly string[]): [string, string] {
  const reader = new TaggedThought();
  const parts = [...pieces.map((piece) => reader.push(piece)), reader.end()];
  return [parts.map(({ thought }) => thought).join(''), parts.map(({ text }) => text).join('')];
}

describe('a thought in the text', () => {
  it.each([
    ['<think>\nI greet.\n</think>\n\nHello.', ['I greet.', 'Hello.']],
    ['\n <think>a < b </b></think>Hello.', ['a < b </b>', 'Hello.']],
    ['<think></think>Hello.', ['', 'Hello.']],
    ['<think>never closed', ['never closed', '']],
    ['Hello. <think>no</think>', ['', 'Hello. <think>no</think>']],
    ['<thinking>no</thinking>', ['', '<thinking>no</thinking>']],
    ['<think', ['', '<think']],
    ['  Hello.', ['', '  Hello.']],
    ['<think>a</think>b <think>c</think>', ['a', 'b <think>c</think>']],
    ['', ['', '']],
  ])('%j', (answer, split) => {
    expect(read(answer)).toEqual(split);
    expect(read(...answer.split(''))).toEqual(split);
    for (let cut = 1; cut < answer.length; cut += 1) {
      expect(read(answer.slice(0, cut), answer.slice(cut))).toEqual(split);
    }
  });
});
